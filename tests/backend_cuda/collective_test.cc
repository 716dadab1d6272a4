// Truth: what nccl.h says of the calls (enum values, the order of arguments), as a library of its
// names notes them; NCCL itself needs devices.
#include "backend/cuda/collective.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

namespace pf {
namespace {

const char* const kFake[] = {PF_FAKE_NCCL};

class Nccl : public testing::Test {
 protected:
  Nccl() : library_(dlopen(kFake[0], RTLD_NOW)) { noted(); }
  ~Nccl() override { dlclose(library_); }
  std::string noted() { return find<const char* (*)()>("fake_nccl_noted")(); }
  void start_with(int status) { find<void (*)(int)>("fake_nccl_start_with")(status); }

 private:
  template <class F>
  F find(const char* name) {
    return reinterpret_cast<F>(dlsym(library_, name));
  }
  void* const library_;
};

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

TEST_F(Nccl, AGatherIsOneGroupOfAllRanksInBytes) {
  {
    Result<AllGather> gather = load_nccl_from(kFake, 2);
    ASSERT_TRUE(gather.ok()) << gather.status().message();
    EXPECT_EQ(noted(), "init 0 1");
    const GatherSide sides[] = {{at(0x10), at(0x20), static_cast<CUstream_st*>(at(0x30))},
                                {at(0x40), at(0x50), static_cast<CUstream_st*>(at(0x60))}};
    (*gather)(sides, 4096);
    EXPECT_EQ(noted(),
              "start; gather 10 20 4096 of type 1 by 100 in 30; gather 40 50 4096 of type 1 by 101 "
              "in 60; end");  // ncclUint8 is 1
  }
  EXPECT_EQ(noted(), "destroy 100; destroy 101");
}

TEST_F(Nccl, ALibraryThatDoesNotStartSaysWhy) {
  start_with(3);
  Result<AllGather> gather = load_nccl_from(kFake, 2);
  start_with(0);
  ASSERT_FALSE(gather.ok());
  EXPECT_EQ(gather.status().message(),
            "--tensor-parallel-size: NCCL does not start on devices 0..1 (internal error); "
            "NCCL_DEBUG=WARN says more, or use --tensor-parallel-size 1");
}

TEST_F(Nccl, AMissingLibraryIsNamedWithWhatToInstall) {
  const char* const missing[] = {"libpilotfish-has-no-such.so.2"};
  Result<AllGather> none = load_nccl_from(missing, 2);
  ASSERT_FALSE(none.ok());
  for (const char* part :
       {"libpilotfish-has-no-such.so.2", "install NCCL", "--tensor-parallel-size 1"})
    EXPECT_NE(none.status().message().find(part), std::string::npos) << none.status().message();
  EXPECT_EQ(none.status().message().find('\n'), std::string::npos);
  const char* const other[] = {"libc.so.6"};
  Result<AllGather> wrong = load_nccl_from(other, 2);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("lacks functions of NCCL"), std::string::npos);
}

}  // namespace
}  // namespace pf
