select body from document where kind = ? and key = ?;
