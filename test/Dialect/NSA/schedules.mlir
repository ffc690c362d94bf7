// RUN: nsa-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{attribute `nsa.schedules` names "backward"; kernels are forward, rotary_forward,}}
module attributes {nsa.schedules = {backward = [#nsa.schedule]}} {}

// -----

// expected-error @+1 {{attribute `nsa.schedules` of "forward" must be a list of #nsa.schedule}}
module attributes {nsa.schedules = {forward = []}} {}

// -----

// expected-error @+1 {{attribute `nsa.schedules` of "selected_forward" has the forms lists and masks}}
module attributes {nsa.schedules = {selected_forward = [#nsa.schedule, #nsa.schedule<form = masks>]}} {}

// -----

// expected-error @+1 {{`column_parts` of a schedule is 0, expected 1 to 16}}
module attributes {nsa.schedules = {forward = [#nsa.schedule<column_parts = 0>]}} {}

// -----

// expected-error @+1 {{`keys` of a schedule is 257, expected 0 to 256}}
module attributes {nsa.schedules = {forward = [#nsa.schedule<keys = 257>]}} {}

// -----

// expected-error @+1 {{`min_blocks` of a schedule is 1, which leaves no registers to a producer, but `producer` is 2}}
module attributes {nsa.schedules = {selected_key_value_grad = [#nsa.schedule<min_blocks = 1, producer = 2>]}} {}
