update form set contracted = $1, oldest = greatest(oldest, $1);
