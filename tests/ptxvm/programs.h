#pragma once
// For mutation runs: the PTX of the one .cu file of a program that has a kernel of this (mangled)
// name is looked at and replaced.

#include <memory>
#include <string>
#include <string_view>

namespace pf::ptxvm {

class Module;
std::string ptx_with(std::string_view kernel_part);
// By a module (load_ptx), from the next launch on.
void replace_ptx_with(std::string_view kernel_part, std::shared_ptr<Module> module);

}  // namespace pf::ptxvm
