"""How many sessions, calls and bytes one host carries: measured CPU times, a simulation, and `dev/scaling.md`."""
