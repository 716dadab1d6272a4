#pragma once
// What the parts of the machine tell report.cc and measure.cc.

#include "ptxvm/decode.h"
#include "ptxvm/ptxvm.h"

namespace pf::ptxvm {

void record_ptx_error(const PtxError& error, const Unit* unit, const std::string& kernel);
void count_launch(Kernel& kernel);         // measure.cc
void forget_module(const Module& module);  // before it ends: its kernels leave the measures
std::string demangled(const std::string& kernel);
// Set by the runtime, which the core does not need: forgets the sticky error.
extern void (*clear_sticky_error)();  // runtime_device.cc

}  // namespace pf::ptxvm
