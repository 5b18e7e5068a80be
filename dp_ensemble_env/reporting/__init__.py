"""How results are shown: outcomes, tables, pictures and pages."""
