select key, body from document where kind = ? and key > ? order by key limit ?;
