"""The page: layout, controller and views over ``d2sd``'s public names."""
