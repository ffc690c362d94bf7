// RUN: nsa-opt %s --nsa-plan --verify-diagnostics

// expected-error @below {{is there already: the program was planned before}}
rt.segment arena @arena size 0 alignment 64
