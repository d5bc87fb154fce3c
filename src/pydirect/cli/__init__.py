"""The command `pydirect`: tables in, tables out."""
