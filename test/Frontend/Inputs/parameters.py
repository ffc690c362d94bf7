"""parameters.py MODEL: names and shapes of the parameters of a model.mlir."""
import re
import sys

with open(sys.argv[1]) as file:
    text = file.read()
for shape, attributes in re.findall(r"%\w+: tensor<([0-9x]*)xf32> \{([^{}]*)\}", text):
    if 'nn.role = "parameter"' in attributes:
        print(re.search(r'nn\.name = "([^"]*)"', attributes)[1], shape)
