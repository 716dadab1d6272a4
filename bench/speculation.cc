// The protocol: for every prompt an answer with K = 0, then one with drafts and one with K = 0
// again, for each K. An answer with drafts counts by the two beside it, as a subject by its probes.
#include "bench/speculation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "bench/bench_model.h"
#include "bench/driver.h"
#include "bench/kernels.h"
#include "bench/source_c.h"
#include "bench/speculation_figures.h"
#include "bench/speculation_prompts.h"
#include "bench/way.h"

namespace pf {
namespace {

constexpr int32_t kContext = 1024, kServerMost = 10;  // as the server's --num-speculative-tokens
constexpr int32_t kLookaheadMost = 16;                // nodes of its own tree
const std::vector<int> kSweepLengths = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16};

bool is_synthetic(const std::string& model) {
  std::vector<std::string> names = synthetic_names();
  return std::find(names.begin(), names.end(), model) != names.end();
}

WayModels models_of(const SpeculationOptions& o) {
  return {o.model, o.draft, o.head, o.medusa, o.draft_layers};
}

// Without a way: an engine that knows no drafter.
EngineOptions engine_options(const SpeculationOptions& o, const Way* way) {
  EngineOptions e;
  e.model = o.model;
  e.speculation = {"off"};
  if (way != nullptr) set_way(*way, models_of(o), &e);
  e.quantization = o.dtype == "bf16" ? "none" : o.dtype;
  e.threads = o.threads;
  e.max_num_seqs = 1;
  e.max_model_len = kContext;
  if (is_synthetic(o.model)) e.num_speculative_tokens = kServerMost;
  return e;
}

// What one way to draft gave on prompts of one kind with one K.
struct Cell {
  SpeculationTally tally;
  std::vector<Round> speed;        // tokens per second: K = 0, drafts, K = 0
  std::vector<Round> of_formula;   // the same, the drafts' over what the formula says of them
  std::vector<Round> of_costs;     // and over the formula with the drafters' upkeep
  std::vector<Round> first_token;  // prompts per second
  int n_answers = 0, n_equal = 0;
  DraftCosts costs;
  RoundCosts parts;
};

std::string length_name(int k) { return k < 0 ? "auto" : std::to_string(k); }

class SpeculationBench {
 public:
  SpeculationBench(const SpeculationOptions& o, std::vector<Way> ways, PromptSet prompts,
                   std::unique_ptr<Driver> plain)
      : o_(o),
        ways_(std::move(ways)),
        prompts_(std::move(prompts)),
        plain_(std::move(plain)),
        report_("speculation") {
    ks_ = o.sweep ? kSweepLengths : o.ks;
    if (o.sweep) merge_kinds();
    report_.head()["model"] = short_name(o.model);
    report_.head()["dtype"] = o.dtype;
    report_.head()["threads"] = plain_->pool().size();
    report_.head()["temperature"] = o.temperature;
    report_.head()["longest answer"] = o.max_tokens;
  }

  Result<Report> run(std::span<const int> cpus) {
    measure_verify_curve();
    for (const Way& way : ways_) {
      Result<std::unique_ptr<Driver>> driver = Driver::create(engine_options(o_, &way), cpus);
      if (!driver.ok()) return driver.status().within("--drafters " + way.name);
      if (Status s = (*driver)->self_test(); !s.ok()) return s;
      std::vector<Cell> all;
      for (const PromptKind& kind : prompts_.kinds)
        if (Status s = measure(way, kind, **driver, &all); !s.ok()) return s;
      if (!all.empty()) add_goals(way.name, all);
    }
    add_aims();
    if (o_.sweep)
      if (Status s = add_claims(); !s.ok()) return s;
    return std::move(report_);
  }

 private:
  void merge_kinds() {
    for (size_t i = 1; i < prompts_.kinds.size(); ++i)
      for (size_t p = 0; p < prompts_.kinds[i].prompts.size(); ++p) {
        prompts_.kinds[0].prompts.push_back(std::move(prompts_.kinds[i].prompts[p]));
        prompts_.kinds[0].predicted.push_back(std::move(prompts_.kinds[i].predicted[p]));
      }
    prompts_.kinds.resize(1);
    prompts_.kinds[0].name = "all";
  }

  // v(m) = T(m) / T(1) for as many rows as a round can have.
  void measure_verify_curve() {
    int most = kServerMost;
    for (const Way& way : ways_) {
      for (int k : ks_) most = std::max(most, way.most_nodes(k, kServerMost));
      if (way.has("lookahead")) most = std::max(most, kLookaheadMost);
    }
    std::vector<Load> passes;
    for (int m = 2; m <= most + 1; ++m) passes.push_back(step_load(plain_->target(), 1, m - 1));
    auto rounds = alternate(o_.protocol, plain_->pool(), step_load(plain_->target(), 1, 0), passes);
    v_ = {1};
    for (int m = 2; m <= most + 1; ++m) {
      Kept share = share_of_probe(rounds, static_cast<size_t>(m - 2));
      v_.push_back(1 / share.median());
      report_.add("verify curve", {{"rows", m},
                                   {"T(m)/T(1)", or_null(v_.back())},
                                   {"pairs", share.spread.n},
                                   {"dropped", share.n_dropped}});
    }
  }

  DriverAsk ask(int k, int n) {
    DriverAsk a;
    a.n = n;
    a.k = k;
    a.end_ids = prompts_.end_ids;
    a.temperature = o_.temperature;
    a.salt = "bench " + std::to_string(n_runs_++);  // nobody remembers an earlier answer
    return a;
  }

  // A prompt and the text that is foretold of its answer.
  struct Asked {
    const std::vector<int32_t>& prompt;
    const std::vector<int32_t>& predicted;
  };

  Result<DriverRun> answer_plain(const Asked& asked) {
    return plain_->run({&asked.prompt, 1}, ask(0, o_.max_tokens));
  }

  Result<DriverRun> answer(const Way& way, Driver& driver, const Asked& asked, int k, int n) {
    DriverAsk a = ask(k, n);
    a.tree = way.widths;
    a.tree_nodes = way.tree_nodes;
    if (way.has("predicted")) {
      a.drafters = way.drafters;
      a.predicted = asked.predicted;
    }
    return driver.run({&asked.prompt, 1}, a);
  }

  Status measure(const Way& way, const PromptKind& kind, Driver& driver, std::vector<Cell>* all) {
    std::vector<Asked> asked;
    for (size_t p = 0; p < kind.prompts.size(); ++p)
      if (!way.has("predicted") || !kind.predicted[p].empty())
        asked.push_back({kind.prompts[p], kind.predicted[p]});
    if (asked.empty()) {
      report_.add("left out", {{"drafters", way.name},
                               {"kind", kind.name},
                               {"why", "its prompts bring no text that foretells the answer"}});
      return {};
    }
    const std::vector<int> ks = way.lengths(ks_);
    std::vector<Cell> cells(ks.size());
    for (size_t i = 0; i < ks.size(); ++i)
      if (Status s = measure_draft_cost(way, asked, driver, ks[i], &cells[i]); !s.ok()) return s;
    Result<DriverRun> warm = answer(way, driver, asked[0], ks[0], 8);
    if (!warm.ok()) return warm.status();
    for (const Asked& a : asked)
      if (Status s = answer_prompt(way, a, driver, ks, &cells); !s.ok()) return s;
    for (size_t i = 0; i < ks.size(); ++i) {
      add_line(way, kind.name, ks[i], cells[i]);
      all->push_back(std::move(cells[i]));
    }
    return {};
  }

  // c and what drafters cost besides, of short answers beside target steps.
  Status measure_draft_cost(const Way& way, const std::vector<Asked>& asked, Driver& driver, int k,
                            Cell* cell) {
    Load step = step_load(plain_->target(), 1, 0);
    auto steps_per_s = [&] {
      plain_->pool().begin();
      double rate = rate_of_slice(step, o_.protocol.slice_s);
      plain_->pool().end();
      return rate;
    };
    DraftCostSums sums;
    int n = std::max(3, o_.protocol.n_rounds / 3), n_kept = 0;
    for (int i = 0; i < 2 * n && n_kept < n; ++i) {
      const double before = steps_per_s();
      const Asked& one = asked[static_cast<size_t>(i) % asked.size()];
      Result<DriverRun> run = answer(way, driver, one, k, std::min(o_.max_tokens, 32));
      if (!run.ok()) return run.status();
      const double probes[] = {before, steps_per_s()};
      if (!is_steady(probes)) continue;
      sums.add(*run, (probes[0] + probes[1]) / 2);
      ++n_kept;
    }
    cell->costs = sums.mean();
    // Where the machine was never steady no cost is known, and no goal is met.
    cell->costs.token.resize(static_cast<size_t>(driver.n_drafters()), n_kept > 0 ? 0 : NAN);
    return {};
  }

  Status answer_prompt(const Way& way, const Asked& asked, Driver& driver,
                       const std::vector<int>& ks, std::vector<Cell>* cells) {
    Result<DriverRun> before = answer_plain(asked);
    if (!before.ok()) return before.status();
    if (before->n_decoded() < 2) return {};  // nothing to gain in an answer of a token or two
    for (size_t i = 0; i < cells->size(); ++i) {
      Result<DriverRun> drafted = answer(way, driver, asked, ks[i], o_.max_tokens);
      if (!drafted.ok()) return drafted.status();
      Result<DriverRun> after = answer_plain(asked);
      if (!after.ok()) return after.status();
      add_answer(*before, *drafted, *after, &(*cells)[i]);
      before = std::move(after);
    }
    return {};
  }

  void add_answer(const DriverRun& before, const DriverRun& drafted, const DriverRun& after,
                  Cell* cell) {
    auto rate = [](const DriverRun& r) { return static_cast<double>(r.n_decoded()) / r.decode_s; };
    SpeculationTally own;
    own.add(drafted);
    cell->tally.add(drafted);
    ++cell->n_answers;
    cell->n_equal += drafted.tokens == before.tokens;
    Round speed{{rate(before), rate(after)}, {rate(drafted)}};
    if (own.n_rounds > 0) {
      double formula = own.predicted_speedup(cell->costs, v_);
      double with_upkeep = own.speedup_with_upkeep(cell->costs, v_);
      cell->of_formula.push_back({speed.probes, {speed.subjects[0] / formula}});
      cell->of_costs.push_back({speed.probes, {speed.subjects[0] / with_upkeep}});
    }
    if (is_steady(speed.probes)) cell->parts.add(before, drafted, after, cell->costs, v_);
    cell->speed.push_back(std::move(speed));
    cell->first_token.push_back(
        {{1 / before.first_token_s, 1 / after.first_token_s}, {1 / drafted.first_token_s}});
  }

  void add_line(const Way& way, const std::string& kind, int k, const Cell& cell) {
    const std::string& drafters = way.name;
    Kept speed = share_of_probe(cell.speed, 0), of_formula = share_of_probe(cell.of_formula, 0);
    Kept of_costs = share_of_probe(cell.of_costs, 0);
    Kept first = share_of_probe(cell.first_token, 0);
    double v = k >= 0 ? v_[static_cast<size_t>(way.most_nodes(k, kServerMost))] : NAN;
    report_.add(o_.sweep ? "sweep" : "drafters",
                {{"drafters", drafters},
                 {"kind", kind},
                 {"K", length_name(k)},
                 {"answers", cell.n_answers},
                 {"tokens/round", or_null(cell.tally.accepted_length())},
                 {"drafted/round", or_null(cell.tally.mean_length())},
                 {"kept by position", join_rates(cell.tally.acceptance())},
                 {"c", or_null(cell.tally.mean_cost(cell.costs))},
                 {"v(K+1)", or_null(v)},
                 {"speed-up", to_json(speed)},
                 {"formula", or_null(cell.tally.predicted_speedup(cell.costs, v_))},
                 {"of formula", to_json(of_formula)},
                 {"with upkeep", or_null(cell.tally.speedup_with_upkeep(cell.costs, v_))},
                 {"of that", to_json(of_costs)},
                 {"first token", or_null(1 / first.median())},
                 {"equal texts", cell.n_equal}});
    const std::string of = drafters + "." + kind + ".k" + length_name(k);
    report_.add(Goal{"C5." + of, "measured speed-up over E/(k c + v(k+1))", of_formula.median(),
                     0.96, true});
    report_.add(Goal{"C5.upkeep." + of, "measured speed-up over E/(k c + v(k+1) + upkeep)",
                     of_costs.median(), 0.96, true});
    add_round_line(drafters, kind, k, cell);
    std::fprintf(stderr, "%s, %s, K %s: %d answers, speed-up %.2f\n", drafters.c_str(),
                 kind.c_str(), length_name(k).c_str(), cell.n_answers, speed.median());
    if (speed.spread.n > 0) best_[kind] = std::max(best_[kind], speed.median());
    measured_[{drafters, k}] = {speed.median(), 1 / first.median(), cell.tally.accepted_length(),
                                cell.tally.mean_cost(cell.costs), v};
  }

  // Where the rounds' time goes, in steps with K = 0: what the formula says and, part by part, what
  // it does not.
  void add_round_line(const std::string& drafters, const std::string& kind, int k,
                      const Cell& cell) {
    RoundCosts::Terms t = cell.parts.mean();
    report_.add("rounds", {{"drafters", drafters},
                           {"kind", kind},
                           {"K", length_name(k)},
                           {"rounds", cell.parts.n_rounds()},
                           {"a round", or_null(t.round)},
                           {"k c + v", or_null(t.formula)},
                           {"propose", or_null(t.propose)},
                           {"verify", or_null(t.verify)},
                           {"upkeep", or_null(t.upkeep)},
                           {"host", or_null(t.host)},
                           {"absorb, apart", or_null(cell.costs.absorb)},
                           {"catch-up, apart", or_null(cell.costs.catch_up)}});
  }

  // Of one way to draft, all kinds and K together.
  void add_goals(const std::string& drafters, std::span<const Cell> cells) {
    int n_answers = 0, n_equal = 0;
    std::vector<Round> first_token;
    for (const Cell& cell : cells) {
      n_answers += cell.n_answers;
      n_equal += cell.n_equal;
      first_token.insert(first_token.end(), cell.first_token.begin(), cell.first_token.end());
    }
    report_.add(Goal{"text." + drafters, "part of the texts that equal those of K = 0",
                     n_answers > 0 ? static_cast<double>(n_equal) / n_answers : NAN, 1, true});
    report_.add(Goal{"C11." + drafters, "time to the first token over that without drafters",
                     1 / share_of_probe(first_token, 0).median(), 1.03, false});
  }

  void add_aims() {
    if (o_.sweep) return;
    for (const PromptKind& kind : prompts_.kinds) {
      auto best = best_.find(kind.name);
      report_.add(Goal{"speed-up." + kind.name, "of the best drafters over K = 0",
                       best == best_.end() ? NAN : best->second, kind.name == "chat" ? 1.5 : 2.0,
                       true});
    }
  }

  // What source C claims, as on paper, and what the nearest of ours does here.
  Status add_claims() {
    Result<SourceC> paper = SourceC::estimate();
    if (!paper.ok()) return paper.status();
    paper->add_to(&report_);
    for (size_t i = 0; i < sweep_claims().size(); ++i) {
      const SweepClaim& claim = sweep_claims()[i];
      auto ours = measured_.find({claim.ours, claim.k});
      if (ours != measured_.end())
        add_claim(claim, paper->costs()[i], paper->needs(i), ours->second);
    }
    return {};
  }

  struct Measured {
    double speedup, first_token, accepted_length, c, v;
  };

  // `needs`: the acceptance at which the claim would hold on paper.
  void add_claim(const SweepClaim& claim, const ClaimCosts& paper, double needs,
                 const Measured& m) {
    const double ours = implied_acceptance(m.accepted_length, claim.k, 0, 1);  // of tokens a round
    std::string why = "costs were not measured: the machine was never steady";
    if (std::isfinite(m.c) && std::isfinite(m.v)) {
      char text[160];
      std::snprintf(text, sizeof(text),
                    "kept a = %.2f, theirs %.2f; with that our c and v give %.2f x", ours, needs,
                    chain_speedup(needs, claim.k, m.c, m.v));
      why = text;
    }
    report_.add("source C on this machine",
                {{"row", claim.what},
                 {"ours", claim.ours},
                 {"K", claim.k},
                 {"claimed x", claimed_speedup(claim)},
                 {"x", or_null(m.speedup)},
                 {"acceptance", or_null(ours)},
                 {"c", or_null(m.c)},
                 {"c on paper", paper.c(claim.k)},
                 {"v", or_null(m.v)},
                 {"v on paper", paper.v()},
                 {"claimed first token", claim.first_token_ms / sweep_claims()[0].first_token_ms},
                 {"first token", or_null(m.first_token)},
                 {"cause", why}});
  }

  const SpeculationOptions& o_;
  const std::vector<Way> ways_;
  PromptSet prompts_;
  std::unique_ptr<Driver> plain_;
  Report report_;
  std::vector<int> ks_;
  std::vector<double> v_;               // [m - 1]
  std::map<std::string, double> best_;  // by kind
  std::map<std::pair<std::string, int>, Measured> measured_;
  int n_runs_ = 0;
};

}  // namespace

Result<Report> bench_speculation(const SpeculationOptions& asked) {
  SpeculationOptions o = asked;
  std::vector<int> cpus = usable_cpus();
  if (Result<CpuOptions::Weights> known = weights_of(o.dtype); !known.ok()) return known.status();
  std::vector<Way> ways;
  for (const std::string& name : o.drafters) {
    Result<Way> way = Way::parse(name);
    if (!way.ok()) return way.status();
    ways.push_back(way.take());
  }
  Result<PromptSet> prompts = read_prompts(o.prompts_file, o.model, o.kinds, o.n_prompts);
  if (!prompts.ok()) return prompts.status();
  for (const Way& way : ways)
    if (is_synthetic(o.model) && way.name != "ngram")
      return invalid("--drafters " + way.name + ": a model with random weights drafts by ngram");
  std::optional<RandomHeads> heads;  // until the last engine that reads them is gone
  const bool medusa =
      std::any_of(ways.begin(), ways.end(), [](auto& w) { return w.has("medusa"); });
  if (medusa && o.medusa.empty()) {
    Result<RandomHeads> made = RandomHeads::make(o.model, 1);
    if (!made.ok()) return made.status();
    heads.emplace(made.take());
    o.medusa = heads->folder();
  }
  if (!is_synthetic(o.model))
    for (const Way& way : ways)
      if (Result<MemoryFigures> fits = plan_engine(engine_options(o, &way)); !fits.ok())
        return fits.status().within("--drafters " + way.name);
  Result<std::unique_ptr<Driver>> plain = Driver::create(engine_options(o, nullptr), cpus);
  if (!plain.ok()) return plain.status();
  Result<Report> report =
      SpeculationBench(o, std::move(ways), prompts.take(), plain.take()).run(cpus);
  if (report.ok() && heads)
    report->add("left out", {{"drafters", "medusa"},
                             {"kind", "all"},
                             {"why",
                              "no heads are shipped: random ones show what they cost and that "
                              "texts stay equal, not what trained ones keep (--medusa)"}});
  return report;
}

}  // namespace pf
