select key from document where kind = $1 order by key;
