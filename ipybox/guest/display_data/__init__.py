"""The data of displays, as further forms of them: DataFrames as tables, matplotlib figures as charts.

docs/outputs.md describes both forms. The kernel's extension imports this package only if the application asks for data.
"""
