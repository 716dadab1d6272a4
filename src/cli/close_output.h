#pragma once

namespace pf {

// The last word of a program: closes stdout. Where what was printed did not all get out (a full
// disk), says so in one line on stderr as `program` and turns kOk into kUsage; other codes stay,
// for they say more. A stdout that was closed from the start is no fault of who printed nothing.
int close_output(const char* program, int code);

}  // namespace pf
