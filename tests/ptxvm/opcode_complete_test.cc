// Truth: the decoder's own table of opcodes; each must have been executed by a test of this binary.
// This file is the last of the target's sources, so its test runs last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptxvm/decode.h"
#include "ptxvm/opcode.h"

namespace pf::ptxvm {
namespace {

TEST(Complete, EveryOpcodeOfTheDecoderWasExecuted) {
  if (testing::GTEST_FLAG(filter) != "*") GTEST_SKIP() << "only a part of the tests has run";
  std::vector<std::string> missing;
  for (const auto& [opcode, selector] : selectors())
    if (!executed_opcodes().count(opcode)) missing.push_back(opcode);
  EXPECT_THAT(missing, testing::IsEmpty());
}

}  // namespace
}  // namespace pf::ptxvm
