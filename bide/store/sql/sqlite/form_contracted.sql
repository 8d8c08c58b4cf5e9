update form set contracted = ?1, oldest = max(oldest, ?1);
