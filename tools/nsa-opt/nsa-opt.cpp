//===- nsa-opt.cpp - run passes on a file ---------------------------------===//

#include "lib/Compiler/OptTool.h"

int main(int argc, char **argv) { return nsa::runOptTool(argc, argv); }
