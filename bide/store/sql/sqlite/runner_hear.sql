update runner set name = ?, pool = ?, body = ? where id = ? and boot = ? returning id;
