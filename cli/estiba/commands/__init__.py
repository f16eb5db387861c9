"""One module per group of commands; `estiba.main` puts them together."""
