"""Computing names that are not spoken as they are spelled, and names that join several words."""

import re

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


def _known(match: re.Match[str]) -> str:
    return SPOKEN.get(match[0].lower(), match[0])


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


RULES: tuple[Rule, ...] = ((_CAMEL, _split), (_WORD, _known))
PROGRAMMING: tuple[Rule, ...] = (
    (re.compile(r"(?<![A-Za-z0-9])(?P<letter>[CFJQ])#(?![A-Za-z0-9])"), r"\g<letter> sharp"),
    (re.compile(r"(?<![A-Za-z0-9])(?P<letter>[CcGg])\+\+(?![A-Za-z0-9])"), r"\g<letter> plus plus"),
    (re.compile(r"(?<![A-Za-z0-9])(?:ASP)?\.NET\b"), lambda match: f"{'A S P ' if match[0][0] == 'A' else ''}dot net"),
    (re.compile(r"(?<=[A-Za-z])\.(?=(?:js|JS|io|ai)\b(?!\.[a-z]))"), " dot "),
    (re.compile(r"(?<=dot )js\b"), "J S"),
    (re.compile(r"(?<![\w&#])#(?P<tag>[A-Za-z][A-Za-z0-9_]{1,60})"), lambda match: f"hashtag {_tag(match['tag'])}"),
    (re.compile(r"(?<![\w.@])@(?=[A-Za-z_][A-Za-z0-9_]{1,30})"), "at "),
)


def _tag(tag: str) -> str:
    return pieces(tag) if not tag.islower() and not tag.isupper() else tag
