delete from document where kind = ? and key = ?;
