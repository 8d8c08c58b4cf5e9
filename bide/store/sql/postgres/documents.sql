select key, body from document where kind = $1 and key > $2 order by key limit $3;
