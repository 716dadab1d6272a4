// Truth: none can be had here; this says so.
#include <gtest/gtest.h>

TEST(PtxVm, NeedsNvcc) {
  GTEST_SKIP() << "no nvcc was found (or PF_CUDA=OFF): the kernels cannot be compiled to PTX, so "
                  "none of them is run; scripts/setup.sh --cuda installs nvcc, it needs no GPU";
}
