select body from document where kind = $1 and key = $2;
