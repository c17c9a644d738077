"""Computing: names that are not spoken as they are spelled, names that join several words, paths,
flags and keys, and words separated by a slash.
"""

import re

from services.frontend.normalization.english import numerals
from services.frontend.normalization.english.numbers.units import NAMES, PER
from services.frontend.text.rules import Rule

_BRANDS = frozenset(["ebay", "iphone", "ipad", "ipod", "imac", "icloud", "imessage", "itunes", "youtube", "paypal"])
SPOKEN = {
    "kubectl": "kube control", "systemctl": "system control", "sysctl": "sys control", "journalctl": "journal control",
    "nginx": "engine X", "postgresql": "Postgres Q L", "mysql": "My S Q L", "nosql": "No S Q L", "graphql": "Graph Q L",
    "mssql": "M S S Q L", "oauth": "O Auth", "oauth2": "O Auth two", "chmod": "C H mod", "chown": "C H own",
    "fstab": "F S tab", "crontab": "cron tab", "stdin": "standard in", "stdout": "standard out",
    "stderr": "standard error", "localhost": "local host", "dotnet": "dot net", "ffmpeg": "F F M peg", "jwt": "J W T",
    "ipv4": "I P version four", "ipv6": "I P version six", "vscode": "V S Code", "tmux": "T mux", "zsh": "Z shell",
    "gcc": "G C C", "mkdir": "make dir", "rmdir": "remove dir", "macos": "mac O S", "ipados": "iPad O S",
    "tvos": "T V O S", "openssl": "Open S S L", "openssh": "Open S S H", "grpc": "G R P C", "etcd": "E T C D",
    "argv": "arg V", "argc": "arg C", "iptables": "I P tables", "ifconfig": "if config", "dmesg": "D message",
    "tcpdump": "T C P dump", "cmake": "C make", "makefile": "make file", "dockerfile": "docker file",
    "fastapi": "Fast A P I", "sqlalchemy": "S Q L alchemy", "pgadmin": "P G admin", "phpmyadmin": "P H P my admin",
    "opencv": "Open C V", "opengl": "Open G L", "webgl": "Web G L", "webrtc": "Web R T C", "rabbitmq": "Rabbit M Q",
    "zeromq": "Zero M Q", "dynamodb": "Dynamo D B", "mongodb": "Mongo D B", "mariadb": "Maria D B",
    "influxdb": "Influx D B", "couchdb": "Couch D B", "chatgpt": "Chat G P T", "openai": "Open A I",
    "sqlite": "S Q Lite", "ios": "I O S", "icloud": "iCloud", "goroutine": "go routine", "wlan": "W LAN",
    "bgp": "B G P", "lvm": "L V M", "vpc": "V P C", "cicd": "C I C D", "devops": "dev ops", "mlops": "M L ops",
    "nvme": "N V M E", "btrfs": "butter F S", "ext4": "ext four", "numpy": "Num Pie", "scipy": "Sci Pie",
    "blvd": "Boulevard", "pkwy": "Parkway", "expy": "Expressway", "tpke": "Turnpike",
    "pypi": "Pie P I", "pytest": "Pie Test", "pytorch": "Pie Torch", "pyspark": "Pie Spark", "pyyaml": "Pie YAML",
}  # fmt: skip
"""Keys are lower-case words."""
_BRAND = re.compile(r"[ie](?:[A-Z][a-z]+|OS|TV)s?")
_CAMEL = re.compile(
    r"(?<![A-Za-z0-9'’.])(?:[a-z]{1,24}+(?:[A-Z][a-z]{0,24}+|[0-9]{1,4}+(?![0-9])){1,12}|[A-Z]{2,12}[A-Z][a-z]{2,24}"
    r"(?:[A-Z][a-z]{0,24}){0,8}|[A-Z][a-z]{1,24}(?:[A-Z][a-z]{1,24}){1,8}[A-Z]{2,6}|(?:[A-Z][a-z]{1,24}){3,8})"
    r"(?![A-Za-z0-9])"
)
_PIECES = re.compile(r"[A-Z]{2,12}(?=[A-Z][a-z])|[A-Z]{2,12}s?(?![a-z])|[A-Z]?[a-z]+|[A-Z]|[0-9]+")
_INITIALS = {"Id": "I D", "Ids": "I D's", "Url": "U R L", "Urls": "U R L's", "Api": "A P I", "Http": "H T T P",
    "Https": "H T T P S",
    "Html": "H T M L", "Xml": "X M L",
             "Db": "D B", "Ip": "I P", "Ui": "U I", "Json": "JSON", "Sql": "S Q L", "Css": "C S S", "Io": "I O",
             "Ssl": "S S L",
             "Tcp": "T C P", "Ok": "okay"}  # fmt: skip
_WORD = re.compile(r"(?<![A-Za-z0-9'’])[A-Za-z]{3,12}[0-9]?(?![A-Za-z0-9'’-])")


def pieces(name: str) -> str:
    """`"getUserById"` as get User By I D, `"HTTPServer"` as HTTP Server."""
    return " ".join(_INITIALS.get(piece) or (SPOKEN.get(piece.lower(), piece)) for piece in _PIECES.findall(name))


def _split(match: re.Match[str]) -> str:
    name = match[0]
    if name.lower() in SPOKEN:
        return SPOKEN[name.lower()]
    if name.lower() in _BRANDS or _BRAND.fullmatch(name) or name.startswith(("Mc", "Mac")):
        return name
    return pieces(name)


RULES: tuple[Rule, ...] = ((_CAMEL, _split), (_WORD, lambda match: SPOKEN.get(match[0].lower(), match[0])))
PROGRAMMING: tuple[Rule, ...] = (
    (re.compile(r"(?<![A-Za-z0-9])(?P<letter>[CFJQ])#(?![A-Za-z0-9])"), r"\g<letter> sharp"),
    (re.compile(r"(?<![A-Za-z0-9])(?P<letter>[CcGg])\+\+(?![A-Za-z0-9])"), r"\g<letter> plus plus"),
    (re.compile(r"(?<![A-Za-z0-9])(?:ASP)?\.NET\b"), lambda match: f"{'A S P ' if match[0][0] == 'A' else ''}dot net"),
    (re.compile(r"(?<=[A-Za-z])\.(?=(?:js|JS|io|ai)\b(?!\.[a-z]))"), " dot "),
    (re.compile(r"(?<=dot )js\b"), "J S"),
    (
        re.compile(r"(?<![\w&#])#(?![A-Z]{1,4}-[0-9])(?P<tag>[A-Za-z][A-Za-z0-9_]{1,60})"),
        lambda match: f"hashtag {_tag(match['tag'])}",
    ),
    (re.compile(r"(?<![\w.@])@(?=[A-Za-z_][A-Za-z0-9_]{1,30})"), "at "),
)


def _tag(tag: str) -> str:
    return pieces(tag) if not tag.islower() and not tag.isupper() else tag


_SPOKEN_WORDS = {
    "w/": "with", "w/o": "without", "b/c": "because", "c/o": "care of", "h/t": "hat tip", "b/w": "between",
    "a/c": "A C", "A/C": "A C", "s/he": "she or he", "his/her": "his or her", "her/his": "her or his",
    "he/she": "he or she", "she/he": "she or he", "him/her": "him or her", "and/or": "and or", "n/a": "N A",
    "N/A": "N A", "w/out": "without", "W/": "with", "W/o": "without",
}  # fmt: skip
_KEYS = {
    "ctrl": "Control", "cmd": "Command", "alt": "Alt", "opt": "Option", "option": "Option", "shift": "Shift",
    "win": "Windows", "fn": "Function", "esc": "Escape", "del": "Delete", "tab": "Tab", "enter": "Enter",
    "super": "Super", "meta": "Meta", "ins": "Insert", "pgup": "Page Up", "pgdn": "Page Down", "command": "Command",
    "control": "Control", "return": "Return", "space": "Space",
}  # fmt: skip
_KEY = r"(?:Ctrl|ctrl|CTRL|Cmd|cmd|CMD|Command|Control|Alt|alt|ALT|Opt|Option|Shift|shift|SHIFT|Win|Fn|Super|Meta)"
_ENDINGS = (
    "py|js|ts|jsx|tsx|md|txt|json|ya?ml|toml|html?|css|csv|tsv|xml|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|mp3|mp4|wav|"
    "zip|tar|gz|sh|bat|exe|dll|so|conf|cfg|ini|log|sql|db|rs|go|rb|java|cpp|hpp|lock|env|bak|iso|dmg|apk|ipynb|proto|"
    "service|pem|key|crt|cs|php|vue|swift|kt|lua|mkv|mov|avi"
)
_TIMES = (
    "min",
    "sec",
    "s",
    "hr",
    "h",
    "day",
    "week",
    "month",
    "year",
    "minute",
    "second",
    "hour",
    "person",
    "wk",
    "yr",
)
_PART = r"[A-Za-z0-9_~.@*%+-]{1,64}"
_SIGNS = {
    "/": "slash",
    "\\": "backslash",
    ".": "dot",
    "-": "dash",
    "_": "underscore",
    "~": "tilde",
    ":": "colon",
    "*": "star",
    "@": "at",
    "%": "percent",
    "+": "plus",
}
_TOKENS = re.compile(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]")
_CONSONANTS = re.compile(r"[b-df-hj-np-tv-xz]{2,5}", re.IGNORECASE)
_PATH_WORDS = {"etc": "E T C", "usr": "user", "lib": "lib", "yml": "YAML", "src": "source"}
_SPELLED = frozenset((
    "py", "md", "js", "ts", "cpp", "pdf", "csv", "html", "css", "xml", "sql", "db", "txt", "exe", "dll", "ini", "iso",
    "apk",
))  # fmt: skip


def _token(token: str) -> str:
    plain = token.lower()
    if spoken := _SIGNS.get(token) or SPOKEN.get(plain) or _PATH_WORDS.get(plain):
        return spoken
    if token.isdigit():
        return numerals.short(token)
    if plain in _SPELLED or _CONSONANTS.fullmatch(plain):
        return " ".join(plain.upper())
    return pieces(token) if not token.isupper() else token


def spoken_path(path: str) -> str:
    """`"/etc/hosts"` as slash E T C slash hosts."""
    return " ".join(_token(token) for token in _TOKENS.findall(path))


def _path(match: re.Match[str]) -> str:
    path = match[0]
    ending = path[len(path.rstrip(".")) :]
    return spoken_path(path[: len(path) - len(ending)]) + ending


def _keys(match: re.Match[str]) -> str:
    return " ".join(
        _KEYS.get(key.lower(), key.upper() if len(key) == 1 else spoken_path(key))
        for key in re.split(r"[ ]?[+-][ ]?", match[0])
        if key
    )


def _flag(match: re.Match[str]) -> str:
    value = f" equals {spoken_path(match['value'])}" if match["value"] else ""
    return f"{'dash dash' if match['dashes'] != '-' else 'dash'} {_flag_name(match['name'], match['dashes'])}{value}"


def _flag_name(name: str, dashes: str) -> str:
    """After a single dash, each of two or three letters is a separate flag."""
    return (
        " ".join(name.upper())
        if len(name) == 1 or (dashes == "-" and len(name) < 4)
        else spoken_path(name).replace("dash ", "")
    )


_COMMAND = re.compile(
    r"\b(?:make|gcc|g\+\+|clang|cc|ld|go|cargo|ninja|cmake|mpirun|pytest|python3?|perl|awk|sed|curl|wget|ssh|ping|git|"
    r"grep|head|tail|ls|tar|xargs|parallel|gzip|bzip2|xz|zip|zstd|nice|nmap|psql|ffmpeg|rustc|javac|jobs|"
    r"flags?|options?|switch|(?:[Rr]un|[Pp]ass|[Aa]dd|[Uu]se)(?: with)?)(?=[ ])[^.!?\n]{0,30}$"
)


def _either(match: re.Match[str]) -> str:
    words = match[0].split("/")
    spoken = _SPOKEN_WORDS.get(match[0]) or _SPOKEN_WORDS.get(match[0].lower())
    if spoken:
        return spoken[0].upper() + spoken[1:] if match[0][0].isupper() and spoken.islower() else spoken
    if len(words) == 2 and words[1] in _TIMES and words[0].endswith("s") and len(words[0]) > 3:
        return f"{words[0]} per {PER[words[1]]}"
    if len(words) == 2 and words[0] in NAMES and words[1] in PER and not (len(words[0]) == 1 and words[0].isupper()):
        return f"{NAMES[words[0]][1]} per {PER[words[1]]}"
    return " ".join(words)


PATHS: tuple[Rule, ...] = (
    (
        re.compile(
            f"(?<![A-Za-z0-9+])(?:{_KEY}[ ]?[+][ ]?|(?:Ctrl|Cmd|Alt)-){{1,4}}(?:F[0-9]{{1,2}}|[A-Z][a-z]{{2,9}}|"
            "[A-Za-z0-9]|[+-])(?![A-Za-z0-9])"
        ),
        _keys,
    ),
    (
        re.compile(
            r"(?<![\w/-])(?P<dashes>--|—)(?P<name>[a-zA-Z][a-zA-Z0-9-]{1,40})(?:=(?P<value>[\w./-]{1,60}))?"
            r"(?=[ .,;:!?)]|$)"
        ),
        _flag,
    ),
    (
        re.compile(r"(?<![\w)\]%/.-])(?<![0-9] )(?P<dashes>-)(?P<name>[A-Za-z]|[a-z]{2,4})(?P<value>)(?=[ .,;:!?)]|$)"),
        _flag,
    ),
    (
        re.compile(r"(?<=[a-z0-9] )(?P<dashes>-)(?P<name>[A-Za-z][0-9]{1,2})(?P<value>)(?=[ .,;:!?)]|$)"),
        lambda match: (
            _flag(match) if _COMMAND.search(match.string, max(0, match.start() - 40), match.start()) else match[0]
        ),
    ),
    (re.compile(rf"(?<![A-Za-z0-9])[A-Za-z]:\\(?:[A-Za-z0-9_. -]{{1,40}}\\){{0,12}}{_PART}"), _path),
    (re.compile(rf"(?<![\w/.:<)-])(?:~|\.{{1,2}})?/{_PART}(?:/{_PART}){{0,16}}/?"), _path),
    (re.compile(rf"(?<![\w/.])(?:{_PART}/){{1,16}}[A-Za-z0-9_-]{{1,40}}\.(?:{_ENDINGS})\b"), _path),
    (
        re.compile(rf"(?<![\w/.@-])[A-Za-z0-9_-]{{1,40}}(?:\.[a-z]{{2,8}})?\.(?:{_ENDINGS})(?![A-Za-z0-9]|\.[A-Za-z])"),
        _path,
    ),
    (
        re.compile(r"(?<![\w.])\.(?P<name>env|gitignore|bashrc|zshrc|dockerignore|ssh|config|git)\b"),
        lambda match: f"dot {_token(match['name'])}",
    ),
)
JOINED_WORDS: tuple[Rule, ...] = (
    (re.compile(r"(?<![A-Za-z0-9/])[wW]/(?=[ A-Za-z])(?!o\b|out\b)[ ]?"), "with "),
    (
        re.compile(
            r"(?<![A-Za-z0-9/.:@#&-])[A-Za-z][A-Za-z'’]{0,19}(?:/[A-Za-z][A-Za-z'’]{0,19}){1,3}(?![A-Za-z0-9/=&]|\?[A-Za-z0-9])"
        ),
        _either,
    ),
    (re.compile(r"\b(?P<name>HTTP|USB|SATA|TCP|UDP)/(?=[0-9])"), r"\g<name> "),
)
