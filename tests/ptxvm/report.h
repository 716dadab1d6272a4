#pragma once
// What the parts of the machine tell report.cc and measure.cc.

#include "ptxvm/decode.h"
#include "ptxvm/measure.h"
#include "ptxvm/ptxvm.h"

namespace pf::ptxvm {

void record_ptx_error(const PtxError& error, const Unit* unit, const std::string& kernel);
// measure.cc
void count_launch(Kernel& kernel, Dim3 grid, Dim3 block, size_t dynamic_shared_bytes);
void keep_figures();  // hands what was measured so far to figures.cc, before it is cleared
// figures.cc
void note_launch(const std::string& kernel, Dim3 grid, Dim3 block, size_t dynamic_shared_bytes);
void add_figures(const Measure& measure, const std::vector<bool>& reached);
// measure.cc
void forget_module(const Module& module);  // before it ends: its kernels leave the measures
std::string demangled(const std::string& kernel);
// Set by the runtime, which the core does not need: forgets the sticky error.
extern void (*clear_sticky_error)();  // runtime_device.cc

}  // namespace pf::ptxvm
