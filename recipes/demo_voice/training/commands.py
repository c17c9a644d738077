"""Command lines of the recipe's stages: what all of them ask for is said here."""

import argparse
from pathlib import Path

import torch


def stage(module: str, description: str | None, work: str) -> argparse.ArgumentParser:
    """The parser of `python -m recipes.demo_voice.MODULE WORK`.

    description: the module's docstring, whose first paragraph is shown. work: what WORK is.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m recipes.demo_voice.{module}", description=(description or "").split("\n\n")[0]
    )
    parser.add_argument("work", type=Path, help=work)
    return parser


def add_device(parser: argparse.ArgumentParser) -> None:
    """--device"""
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    """--tokenizer"""
    parser.add_argument("--tokenizer", default="tokenizer", help="folder of the speech tokenizer in WORK")


def add_start(parser: argparse.ArgumentParser, file: str) -> None:
    """--start. file: the published name of what the training makes."""
    parser.add_argument(
        "--start", type=Path, metavar="FILE", help=f"begin with the weights of this {file}, of a like tokenizer"
    )


def training(
    module: str, description: str | None, work: str, *, minutes: float, name: str | None = None
) -> argparse.ArgumentParser:
    """As `stage`, with the options of a training. name: default of --name, which is left out when
    other stages look for the results in one place only.
    """
    parser = stage(module, description, work)
    if name is not None:
        parser.add_argument("--name", default=name, help="folder of the results in WORK")
    parser.add_argument("--minutes", type=float, default=minutes, help="training time, interruptions not counted")
    parser.add_argument("--steps", type=int, default=10**9, help="stop earlier, after so many optimiser steps")
    add_device(parser)
    return parser


def device_of(options: argparse.Namespace) -> torch.device:
    """The device of --device, made the current one when it is a certain GPU."""
    device = torch.device(options.device)
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return device
