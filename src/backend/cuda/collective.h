#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/status.h"

struct CUstream_st;  // what a cudaStream_t points to: this header is read without CUDA's, too

namespace pf {

// One rank's side of a gather: memory on its device, and its stream.
struct GatherSide {
  const void* from = nullptr;  // `bytes`
  void* to = nullptr;          // ranks * `bytes`; does not overlap `from`
  CUstream_st* stream = nullptr;
};

// The only thing that the devices of one process do together: what each rank has at `from` comes to
// every rank's `to`, in rank order. Enqueued on the ranks' streams, from one thread: it begins when
// they have come to it, and a stream goes on when its own side is done with. Nothing is added: sums
// are made from what was gathered, in rank order, so that their bits do not depend on rings or
// trees of links. Tests put one of their own here.
using AllGather = std::function<void(std::span<const GatherSide> by_rank, size_t bytes)>;

// NCCL between devices 0 .. n - 1, found at run time, so that a program without it runs where the
// library is not: the error says what to install.
Result<AllGather> load_nccl(int n);

// The same from the first of these files that is there.
Result<AllGather> load_nccl_from(std::span<const char* const> names, int n);

}  // namespace pf
