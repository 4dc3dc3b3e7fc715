"""HTML pages in one file: text, tables and plotly's pictures, for the reports."""
