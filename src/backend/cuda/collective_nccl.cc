// Most servers have one device, so NCCL is neither linked nor needed at build time: six functions
// of its C interface, by name. One thread speaks for all devices, so what belongs together stands
// between ncclGroupStart and ncclGroupEnd: without them the first call would wait for the others.
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/collective.h"
#include "base/check.h"
#include "base/shared_library.h"

namespace pf {
namespace {

// Of nccl.h, the same in all of NCCL 2.
using Communicator = void*;
constexpr int kSuccess = 0, kBytes = 1;  // ncclSuccess, ncclUint8
using InitAll = int (*)(Communicator*, int n, const int* devices);
using Destroy = int (*)(Communicator);
using Group = int (*)();
using Gather = int (*)(const void* from, void* to, size_t n, int type, Communicator, cudaStream_t);
using ErrorText = const char* (*)(int);

struct Nccl {
  SharedLibrary library;
  std::vector<Communicator> ranks;
  InitAll init_all = nullptr;
  Destroy destroy = nullptr;
  Group group_start = nullptr, group_end = nullptr;
  Gather all_gather = nullptr;
  ErrorText error_text = nullptr;

  Nccl() = default;
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;
  ~Nccl() {
    for (Communicator c : ranks) destroy(c);
  }

  bool find_all() {
    return library.find("ncclCommInitAll", &init_all) &&
           library.find("ncclCommDestroy", &destroy) &&
           library.find("ncclGroupStart", &group_start) &&
           library.find("ncclGroupEnd", &group_end) && library.find("ncclAllGather", &all_gather) &&
           library.find("ncclGetErrorString", &error_text);
  }

  void gather(std::span<const GatherSide> by_rank, size_t bytes) const {
    check(by_rank.size() == ranks.size(), "a gather of other ranks than NCCL was made for");
    int status = group_start();
    for (size_t r = 0; r < ranks.size() && status == kSuccess; ++r)
      status =
          all_gather(by_rank[r].from, by_rank[r].to, bytes, kBytes, ranks[r], by_rank[r].stream);
    if (status == kSuccess) status = group_end();
    check(status == kSuccess, "NCCL refused a gather");
  }
};

Status unusable(const std::string& why) {
  return Status(Code::kUnavailable,
                "--tensor-parallel-size: " + why + ", or use --tensor-parallel-size 1");
}

}  // namespace

Result<AllGather> load_nccl_from(std::span<const char* const> names, int n) {
  auto nccl = std::make_shared<Nccl>();  // shared: a std::function may be copied
  Result<SharedLibrary> library = SharedLibrary::open(names);
  if (!library.ok())
    return unusable(library.status().message() +
                    "; install NCCL (libnccl2, or pip's nvidia-nccl with its folder in "
                    "LD_LIBRARY_PATH)");
  nccl->library = library.take();
  if (!nccl->find_all())
    return unusable("the library that was found lacks functions of NCCL 2; install a later one");
  std::vector<int> devices;
  for (int d = 0; d < n; ++d) devices.push_back(d);
  std::vector<Communicator> ranks(devices.size());
  if (int status = nccl->init_all(ranks.data(), n, devices.data()); status != kSuccess)
    return unusable("NCCL does not start on devices 0.." + std::to_string(n - 1) + " (" +
                    nccl->error_text(status) + "); NCCL_DEBUG=WARN says more");
  nccl->ranks = std::move(ranks);
  return AllGather(
      [nccl](std::span<const GatherSide> by_rank, size_t bytes) { nccl->gather(by_rank, bytes); });
}

Result<AllGather> load_nccl(int n) {
  static constexpr const char* kNames[] = {"libnccl.so.2", "libnccl.so"};
  return load_nccl_from(kNames, n);
}

}  // namespace pf
