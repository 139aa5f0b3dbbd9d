"""run_notebook.py FILE.ipynb [--write]: runs a notebook's cells in order, as Jupyter does: the value of a cell's last expression is
shown, as HTML where it has that. --write keeps what is printed in the file."""
import ast
import contextlib
import io
import json
import sys

path = sys.argv[1]
notebook = json.load(open(path))
assert notebook["nbformat"] == 4
names = {"__name__": "__main__"}
count = 0
for cell in notebook["cells"]:
    if cell["cell_type"] != "code":
        continue
    count += 1
    tree = ast.parse("".join(cell["source"]), f"cell {count}")
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)
        value = eval(compile(last, f"cell {count}", "eval"), names) if last else None
    outputs = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)})
    if value is not None:
        shown = value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)
        print(f"[{count}] {shown[:60]}")
        text = "a page" if hasattr(value, "_repr_html_") else shown
        outputs.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": {"text/plain": [text]}})
    cell["execution_count"], cell["outputs"] = count, outputs
    print(printed.getvalue(), end="")
print(f"{count} cells ran")
if "--write" in sys.argv:
    with open(path, "w") as file:
        json.dump(notebook, file, indent=1)
        file.write("\n")
