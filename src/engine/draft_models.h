#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/options.h"
#include "model/model.h"
#include "speculation/draft_windows.h"

namespace pf {

// A draft as its file has it, and how it goes with the target.
struct DraftModel {
  Model model;  // may borrow from the target
  DraftOption from;
  std::string name;            // as requests call it
  DraftVocabulary vocabulary;  // fitted to both; empty: the target's ids
  int32_t n_known = 0;         // ids from here on are padding that the draft lacks; 0: none
  // How it differs from the target, where that is provided for; one line each.
  std::vector<std::string> notes;
  bool has_lora = false;  // --draft-lora is merged into it

  bool is_head() const { return model.takes_hidden(); }
  // What --speculation calls it.
  const char* kind() const {
    return model.head_kind == HeadKind::kMedusa ? "medusa" : is_head() ? "eagle" : "model";
  }
};

// Opens one --draft. Refuses, with the list of what is wrong, a draft without a rope_theta or
// without a map of its tokens, and what check_fits refuses. Of shapes, a missing map is a note.
Result<DraftModel> load_draft(const EngineOptions& options, const DraftOption& option,
                              Content content, const Model& target);

// Refuses a --draft-lora that none of the drafts has taken, or several.
Status check_lora_taken(const EngineOptions& options, const std::vector<DraftModel>& drafts);

// Where a draft model keeps K and V.
struct DraftPlace {
  bool in_tables = true;        // in a plane over the target's block tables
  int64_t max_context = 0;      // of the texts that it serves there
  bool overlaps = false;        // on a device of its own: it drafts while the target computes
  int64_t window_tokens = 0;    // of a window; 0: none
  int32_t n_window_blocks = 0;  // of all windows
};
// `same_device`: as the target. Adds a note when texts can outgrow the tables' part.
Result<DraftPlace> place_draft(const EngineOptions& options, int64_t max_context, bool same_device,
                               DraftModel* draft);

}  // namespace pf
