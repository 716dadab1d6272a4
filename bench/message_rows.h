#pragma once

#include <string>

#include "base/status.h"
#include "bench/report.h"

namespace pf {

// C8: CPU time of one streamed message at 64 streams, one message per request and step, through the
// server over the loopback. Engine thread, dispatcher, text and gRPC are the product's; the device
// is scripted: it says 64 tokens a step and sleeps in between, so that each is a message of its
// own. `program` (pilotfish-bench) is started as the client, a process apart. The figure is a
// difference: CPU time of this process for long answers less that for short ones, without the
// engine thread's, over the messages that were more. Of 13 us on a shared Zen 4 (perf) the kernel
// took 5.4, one sendmsg each with the receiving half of the loopback in it, gRPC 6 and the server's
// own code 2. Errors: the server's or the client's.
Status bench_messages(const std::string& program, bool quick, Report* report);

}  // namespace pf
