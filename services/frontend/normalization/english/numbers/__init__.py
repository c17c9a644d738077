"""English rules for amounts: money, units, dates, times, ratios, arithmetic and plain numbers."""
