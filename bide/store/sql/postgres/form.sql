select applied, contracted, oldest from form;
