"""Prints a function that adds 200 tensors up."""

TYPE = "tensor<8x4xf32>"
print(f"func.func @sum({', '.join(f'%x{i}: {TYPE}' for i in range(1, 200))}, %y0: {TYPE}) -> {TYPE} {{")
for i in range(1, 200):
    print(f"  %y{i} = nn.add %y{i - 1}, %x{i} : ({TYPE}, {TYPE}) -> {TYPE}")
print(f"  return %y199 : {TYPE}\n}}")
