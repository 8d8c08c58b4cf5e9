select contracted, oldest from form;
