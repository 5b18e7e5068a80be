"""From meters to an event and its settlement: forecast the day, plan, export, settle."""
