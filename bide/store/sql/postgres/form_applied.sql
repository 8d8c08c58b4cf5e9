update form set applied = greatest(applied, $1);
