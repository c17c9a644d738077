"""Units of measurement: symbol, name of one, name of several. Symbols that are words or other
things too stand in `units`.
"""

_REGULAR = {
    "mm": "millimeter", "cm": "centimeter", "dm": "decimeter", "m": "meter", "km": "kilometer", "µm": "micrometer",
    "μm": "micrometer", "um": "micrometer", "nm": "nanometer", "yd": "yard", "yds": "yard", "mi": "mile", "mil": "mil",
    "mg": "milligram", "µg": "microgram", "μg": "microgram", "mcg": "microgram", "g": "gram", "kg": "kilogram",
    "kgs": "kilogram", "kgf": "kilogram force", "lb": "pound", "lbs": "pound", "oz": "ounce", "ml": "milliliter",
    "mL": "milliliter", "cl": "centiliter", "cL": "centiliter", "dl": "deciliter", "dL": "deciliter", "l": "liter",
    "L": "liter", "µL": "microliter", "μL": "microliter", "fl oz": "fluid ounce", "fl. oz": "fluid ounce",
    "gal": "gallon", "qt": "quart", "pt": "pint", "tsp": "teaspoon", "tsps": "teaspoon", "tbsp": "tablespoon",
    "tbsps": "tablespoon", "Tbsp": "tablespoon", "TBSP": "tablespoon", "tbs": "tablespoon", "Tsp": "teaspoon",
    "ms": "millisecond", "msec": "millisecond", "µs": "microsecond", "μs": "microsecond", "us": "microsecond",
    "ns": "nanosecond", "ps": "picosecond", "s": "second", "sec": "second", "secs": "second", "min": "minute",
    "mins": "minute", "h": "hour", "hr": "hour", "hrs": "hour", "wk": "week", "wks": "week", "mo": "month",
    "mos": "month", "yr": "year", "yrs": "year", "kn": "knot", "kt": "knot", "kts": "knot", "B": "byte",
    "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte", "PB": "petabyte",
    "EB": "exabyte", "KiB": "kibibyte", "MiB": "mebibyte", "GiB": "gibibyte", "TiB": "tebibyte", "Kb": "kilobit",
    "kb": "kilobit", "Mb": "megabit", "Gb": "gigabit", "V": "volt", "mV": "millivolt", "kV": "kilovolt",
    "MV": "megavolt", "A": "amp", "mA": "milliamp", "µA": "microamp", "μA": "microamp", "kA": "kiloamp", "W": "watt",
    "mW": "milliwatt", "kW": "kilowatt", "MW": "megawatt", "GW": "gigawatt", "TW": "terawatt", "Wh": "watt hour",
    "kWh": "kilowatt hour", "MWh": "megawatt hour", "GWh": "gigawatt hour", "TWh": "terawatt hour",
    "mAh": "milliamp hour", "Ah": "amp hour", "kVA": "kilovolt amp", "VA": "volt amp", "Ω": "ohm", "kΩ": "kilohm",
    "MΩ": "megohm", "mΩ": "milliohm", "F": "farad", "pF": "picofarad", "nF": "nanofarad", "µF": "microfarad",
    "μF": "microfarad", "mF": "millifarad", "H": "henry", "mH": "millihenry", "µH": "microhenry", "μH": "microhenry",
    "dB": "decibel", "dBA": "A-weighted decibel", "Pa": "pascal", "kPa": "kilopascal", "hPa": "hectopascal",
    "MPa": "megapascal", "GPa": "gigapascal", "mbar": "millibar", "atm": "atmosphere", "J": "joule", "kJ": "kilojoule",
    "MJ": "megajoule", "cal": "calorie", "kcal": "kilocalorie", "eV": "electron volt", "keV": "kilo electron volt",
    "MeV": "mega electron volt", "GeV": "giga electron volt", "N": "newton", "kN": "kilonewton", "Nm": "newton meter",
    "N·m": "newton meter", "lm": "lumen", "mol": "mole", "mmol": "millimole", "ha": "hectare", "ac": "acre",
    "px": "pixel", "MP": "megapixel", "rad": "radian", "Bq": "becquerel", "Sv": "sievert", "mSv": "millisievert",
    "ct": "carat", "pkg": "package", "pkgs": "package", "doz": "dozen", "qts": "quart", "pts": "point",
    "gals": "gallon", "T": "tesla", "mT": "millitesla", "K": "kelvin", "ly": "light year", "pc": "parsec",
    "AU": "astronomical unit", "t": "ton", "°": "degree",
}  # fmt: skip
_IRREGULAR = {
    "ft": ("foot", "feet"), "Hz": ("hertz", "hertz"), "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"), "GHz": ("gigahertz", "gigahertz"), "THz": ("terahertz", "terahertz"),
    "lx": ("lux", "lux"), "bar": ("bar", "bar"), "psi": ("pound per square inch", "pounds per square inch"),
    "mph": ("mile per hour", "miles per hour"), "MPH": ("mile per hour", "miles per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"), "kmh": ("kilometer per hour", "kilometers per hour"),
    "km/hr": ("kilometer per hour", "kilometers per hour"), "mpg": ("mile per gallon", "miles per gallon"),
    "fps": ("frame per second", "frames per second"), "FPS": ("frame per second", "frames per second"),
    "rpm": ("revolution per minute", "revolutions per minute"),
    "RPM": ("revolution per minute", "revolutions per minute"), "bpm": ("beat per minute", "beats per minute"),
    "BPM": ("beat per minute", "beats per minute"), "ppm": ("part per million", "parts per million"),
    "ppb": ("part per billion", "parts per billion"), "dpi": ("dot per inch", "dots per inch"),
    "ppi": ("pixel per inch", "pixels per inch"), "bps": ("bit per second", "bits per second"),
    "kbps": ("kilobit per second", "kilobits per second"), "Kbps": ("kilobit per second", "kilobits per second"),
    "Mbps": ("megabit per second", "megabits per second"), "Gbps": ("gigabit per second", "gigabits per second"),
    "hp": ("horsepower", "horsepower"), "HP": ("horsepower", "horsepower"),
    "mmHg": ("millimeter of mercury", "millimeters of mercury"), "lb-ft": ("pound foot", "pound feet"),
    "wpm": ("word per minute", "words per minute"), "sq ft": ("square foot", "square feet"),
    "sq. ft": ("square foot", "square feet"), "sqft": ("square foot", "square feet"),
    "cu ft": ("cubic foot", "cubic feet"), "cu. ft": ("cubic foot", "cubic feet"),
    "sq m": ("square meter", "square meters"), "sq mi": ("square mile", "square miles"),
    "sq km": ("square kilometer", "square kilometers"), "sq in": ("square inch", "square inches"),
    "sq yd": ("square yard", "square yards"), "cc": ("cubic centimeter", "cubic centimeters"), "BTU": ("BTU", "BTU"),
    "IU": ("IU", "IU"), "㎡": ("square meter", "square meters"), "㎏": ("kilogram", "kilograms"),
    "㎞": ("kilometer", "kilometers"), "㎝": ("centimeter", "centimeters"), "㎜": ("millimeter", "millimeters"),
    "°C": ("degree Celsius", "degrees Celsius"), "° C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"), "° F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "℃": ("degree Celsius", "degrees Celsius"), "℉": ("degree Fahrenheit", "degrees Fahrenheit"),
    "%": ("percent", "percent"), "‰": ("per mille", "per mille"), "st": ("stone", "stone"),
}  # fmt: skip
NAMES = {
    symbol: (name, f"{name}es" if name.endswith("ch") else f"{name}s") for symbol, name in _REGULAR.items()
} | _IRREGULAR
NAMES["H"] = ("henry", "henries")
POWERS = {"²": "square ", "2": "square ", "^2": "square ", "³": "cubic ", "3": "cubic ", "^3": "cubic "}
LENGTHS = ("mm", "cm", "dm", "m", "km", "µm", "μm", "nm", "ft", "yd", "mi", "in")
"""That have squares and cubes."""
