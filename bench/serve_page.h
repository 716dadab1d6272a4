#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/plot.h"
#include "bench/serve_figures.h"

namespace pf {

// Latencies as distributions, tokens per second over time, acceptance per position, alpha and
// drafted tokens per round over time (each answer where it ended), of completed requests.
std::vector<Plot> serve_plots(std::span<const RequestRecord> records);

// The page of one load; an empty path writes nothing. Errors: the file cannot be written.
Status write_serve_page(const std::string& path, const Json& figures,
                        std::span<const RequestRecord> records);

}  // namespace pf
