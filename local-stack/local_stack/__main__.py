"""`python -m local_stack up|down|status|logs`: the same commands that `hindsight` carries at its top level."""

from local_stack.cli import app

if __name__ == "__main__":
    app(prog_name="hindsight")
