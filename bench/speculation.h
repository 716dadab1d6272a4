#pragma once

#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/report.h"

namespace pf {

struct SpeculationOptions {
  std::string model = "models/SmolLM2-135M-Instruct.Q4_1.gguf";  // or a synthetic shape
  std::string draft = "models/drafts/smollm2-3l";                // of "model"
  std::string head = "models/drafts/smollm2-eagle";              // of "eagle"
  std::string prompts_file = "bench/prompts/speculation.json";   // {"kind": ["prompt", ...], ...}
  std::vector<std::string> kinds;                                // none: all of the file
  std::string medusa;                                            // heads; "": random ones
  // Each a way to draft (way.h).
  std::vector<std::string> drafters = {"ngram", "eagle", "model", "predicted", "ngram,eagle"};
  int draft_layers = 8;           // of "early-exit"
  std::vector<int> ks = {4, -1};  // drafted per round; -1: the server's own choice
  std::string dtype = "bf16";     // of the model
  int threads = 0;                // 0: the CPUs
  int n_prompts = 20;             // of each kind, at most
  int max_tokens = 128;           // of each answer, at most
  float temperature = 0;          // > 0: with a seed, so the text must still be that of K = 0
  // The table of source C: draft lengths 1..16, all kinds together; and as on paper (source_c.h).
  bool sweep = false;
  Protocol protocol{30, 0.010};  // of the verify curve; a third as many rounds of the draft cost
};

// What speculation gives on real prompts, one answer at a time, each beside answers without drafts
// (K = 0, an engine of its own that knows no drafter) in alternation: acceptance, tokens per round,
// draft cost c and verify curve v measured apart from them, the speed-up, and how much of what the
// formula promises of a, c and v is had (PERFORMANCE, C5; with what drafters cost whether they
// draft or not: hidden states to take in, a prompt to catch up with). "rounds" says part by part
// where time goes that the formula does not know of. A round whose two answers with K = 0
// differ by more than 10 % is dropped and counted. Texts must be equal to those of K = 0. Prompts
// that foretell no text are left out where the text is what drafts.
Result<Report> bench_speculation(const SpeculationOptions& options);

}  // namespace pf
