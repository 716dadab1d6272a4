// A loaded text: its variables in device memory, its kernels decoded at first use.

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ptxvm/decoder.h"
#include "ptxvm/memory.h"
#include "ptxvm/report.h"

namespace pf::ptxvm {

Module::Module(std::string text) : unit_(parse(text)) { make_variables(); }

Module::~Module() {
  forget_module(*this);
  for (const auto& [name, s] : symbols_) DeviceMemory::get().release(s.address);
}

void Module::make_variables() {
  for (const Variable& v : unit_.variables) {
    if (v.space == Space::kShared || v.is_extern) continue;
    auto unit = static_cast<uint64_t>(size_of(v.type));
    uint64_t bytes = std::max<uint64_t>(v.count, 1) * unit;
    Region* r = DeviceMemory::get().allocate(
        bytes, (v.space == Space::kConst ? "__constant__ " : "__device__ ") + v.name);
    check(r != nullptr, "ptxvm: no device memory left for a module's variables");
    r->read_only = v.space == Space::kConst;
    std::memset(r->data, 0, bytes);
    r->set_written(0, bytes);
    symbols_[v.name] = {v.space, r->base, bytes};
  }
  for (const Variable& v : unit_.variables) {
    if (v.init.empty() || v.space == Space::kShared) continue;
    Region* r = DeviceMemory::get().find(symbols_.at(v.name).address);
    auto unit = static_cast<uint64_t>(size_of(v.type));
    for (size_t i = 0; i < v.init.size() && i * unit < r->bytes; ++i) {
      auto s = symbols_.find(v.init[i]);
      uint64_t bits = s != symbols_.end() ? s->second.address : literal(v.init[i], v.type);
      std::memcpy(r->data + i * unit, &bits, unit);
    }
  }
}

Kernel& Module::kernel(const std::string& name) {
  auto it = kernels_.find(name);
  if (it == kernels_.end()) {
    for (const Function& f : unit_.functions) {
      if (f.name != name || !f.is_entry || !f.has_body) continue;
      auto kernel = std::make_unique<Kernel>();
      Decoder(*this, unit_, f, *kernel);
      it = kernels_.emplace(name, std::move(kernel)).first;
    }
    if (it == kernels_.end()) throw PtxError("no kernel " + name, 0);
  }
  return *it->second;
}

const Module::Symbol* Module::symbol(const std::string& name) const {
  auto it = symbols_.find(name);
  return it == symbols_.end() ? nullptr : &it->second;
}

bool Module::owns(const Kernel* kernel) const {
  for (const auto& [name, k] : kernels_)
    if (k.get() == kernel) return true;
  return false;
}

std::vector<std::string> Module::kernel_names() const {
  std::vector<std::string> out;
  for (const Function& f : unit_.functions)
    if (f.is_entry && f.has_body) out.push_back(f.name);
  return out;
}

}  // namespace pf::ptxvm
