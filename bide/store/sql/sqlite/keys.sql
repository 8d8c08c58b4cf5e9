select key from document where kind = ? order by key;
