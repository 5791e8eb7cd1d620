"""Make .venv with everything that Parnas needs, using plain Python; `make setup` calls this.

    python3 tools/bootstrap.py
    python3 tools/bootstrap.py --extras           # .venv-extras: for the exporters too, over .venv
    TORCH_INDEX=URL python3 tools/bootstrap.py    # another build of torch, from this package index
    python3 tools/bootstrap.py --requirements     # print what requirements.lock is made from

If the interpreter already has a suitable torch (a GPU image), that torch is used.
"""

# Old interpreters must get as far as the message about their version: no syntax above 3.6 here.
import argparse
import importlib.util
import os
import subprocess
import sys

TORCH = "torch==2.13.0"
# What the code is tried with; a torch that is there already must lie in this range.
TORCH_FROM, TORCH_BELOW = (2, 11), (2, 14)
PYTHON_FROM, PYTHON_BELOW = (3, 11), (3, 14)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requirements", action="store_true", help="print the version ranges, without torch"
    )
    parser.add_argument(
        "--extras", action="store_true", help="with all extras of pyproject.toml, in .venv-extras"
    )
    arguments = parser.parse_args()
    check_interpreter()
    if arguments.requirements:
        print("\n".join(requirements(arguments.extras)))
        return
    extras = "-extras" if arguments.extras else ""
    venv, lock = os.path.join(ROOT, ".venv" + extras), "requirements" + extras + ".lock"
    # The interpreter whose packages --system-site-packages means.
    version = torch_of(getattr(sys, "_base_executable", None) or sys.executable)
    options = ["--system-site-packages"] if version else []
    print("set-up: {} with Python {}.{}.{}".format(venv, *sys.version_info[:3]), flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", *options, venv], check=True)
    if version:
        print(f"set-up: torch {version} is there already; adding the rest to it", flush=True)
        pip(venv, "the other packages, by version ranges", *requirements(arguments.extras))
    else:
        if arguments.extras:  # what .venv has is not installed again
            packages = os.path.join("lib", "python{}.{}".format(*sys.version_info), "site-packages")
            with open(os.path.join(venv, packages, "base.pth"), "w") as file:
                file.write(os.path.join(ROOT, ".venv", packages))
        index = os.environ.get("TORCH_INDEX")
        pip(venv, TORCH, TORCH, *(["--extra-index-url", index] if index else []))
        pip(venv, lock, "-r", os.path.join(ROOT, lock))
    with open(os.path.join(venv, ".ok"), "w"):
        print("set-up: done")


def check_interpreter() -> None:
    """Exit with one line where this interpreter cannot be used."""
    if not PYTHON_FROM <= sys.version_info[:2] < PYTHON_BELOW:
        fail(
            f"Parnas needs Python 3.{PYTHON_FROM[1]} to 3.{PYTHON_BELOW[1] - 1}; "
            f"{sys.executable} is {sys.version_info[0]}.{sys.version_info[1]}. "
            f"Run: make PYTHON=/path/to/python3.{PYTHON_BELOW[1] - 1} setup"
        )
    if importlib.util.find_spec("ensurepip") is None:
        fail("this Python cannot make virtual environments; on Debian: apt install python3-venv")


def torch_of(python: str) -> "str | None":
    """The version of a fitting torch that this interpreter can import, else None."""
    call = subprocess.run(
        [python, "-I", "-c", "import torch; print(torch.__version__)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    version = call.stdout.decode().strip()
    try:
        numbers = tuple(int(part) for part in version.split(".")[:2])
    except ValueError:
        return None
    return version if TORCH_FROM <= numbers < TORCH_BELOW else None


def requirements(with_extras: bool) -> "list[str]":
    """The version ranges of pyproject.toml with its dev extra, or with all; torch left out."""
    import tomllib

    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        project = tomllib.load(file)["project"]
    ranges: list[str] = list(project["dependencies"])
    for extra, packages in project["optional-dependencies"].items():
        if with_extras or extra == "dev":
            ranges += packages
    return sorted({entry for entry in ranges if not entry.startswith("torch>")})


def pip(venv: str, what: str, *arguments: str) -> None:
    """Install quietly."""
    print("set-up: installing " + what, flush=True)
    python = os.path.join(venv, "bin", "python")
    call = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*call, *arguments], stdin=subprocess.DEVNULL).returncode:
        fail("set-up: pip could not install " + what)


def fail(line: str) -> None:
    """Exit with code 2 and a line on stderr."""
    sys.stderr.write(line + "\n")
    sys.exit(2)


if __name__ == "__main__":
    main()
