#include "server/admin_service.h"

#include "server/admin_policy.h"
#include "server/admission.h"

namespace pf {
namespace {

namespace admin = pilotfish::v1;

grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

grpc::Status no_model() {
  return {grpc::StatusCode::UNAVAILABLE, "the model is still loading; try again later"};
}

void fill_memory(const MemoryFigures& memory, admin::MemoryPlan* out) {
  for (const MemoryFigures::Part& part : memory.parts) {
    admin::MemoryPlan::Part* p = out->add_parts();
    p->set_name(part.name);
    p->set_bytes(static_cast<uint64_t>(part.bytes));
  }
  out->set_total_bytes(static_cast<uint64_t>(memory.total_bytes()));
  out->set_device_bytes(static_cast<uint64_t>(memory.device_bytes));
  out->set_fits(memory.fits);
  out->set_max_context(static_cast<uint32_t>(memory.max_context));
  out->set_max_concurrent_at_max_context(static_cast<uint32_t>(memory.n_full_sequences));
  out->set_kv_bytes_per_token(static_cast<uint64_t>(memory.kv_bytes_per_token));
}

void fill_engine(const RecentFigures& f, admin::ServerInfo* info) {
  const Snapshot& s = f.now;
  auto since = [](int64_t now, int64_t before) { return static_cast<double>(now - before); };
  double tokens = since(s.n_generated_tokens, f.before.n_generated_tokens);
  double drafted = since(s.n_drafted, f.before.n_drafted);
  double kept = since(s.n_accepted, f.before.n_accepted);
  double rounds = since(s.n_rounds, f.before.n_rounds);
  double draft_rounds = since(s.n_draft_rounds, f.before.n_draft_rounds);
  info->set_running(static_cast<uint32_t>(s.n_running));
  info->set_waiting(static_cast<uint32_t>(s.n_waiting));
  info->set_steps(s.n_steps);
  info->set_last_step_age_ms(static_cast<uint64_t>(f.age_us / 1000));
  info->set_kv_blocks_total(static_cast<uint32_t>(s.kv_blocks_total));
  info->set_kv_blocks_in_use(static_cast<uint32_t>(s.kv_blocks_in_use));
  info->set_kv_blocks_cached(static_cast<uint32_t>(s.kv_blocks_cached));
  info->set_tokens_per_second(f.seconds > 0 ? tokens / f.seconds : 0);
  info->set_acceptance_rate(drafted > 0 ? kept / drafted : 0);
  info->set_accepted_length(rounds > 0 ? 1 + kept / rounds : 0);
  info->set_speedup(s.speedup.speedup_since(f.before.speedup));
  info->set_alpha(s.alpha);
  info->set_utilisation(s.utilisation);
  info->set_draft_length(draft_rounds > 0 ? drafted / draft_rounds : 0);
}

}  // namespace

AdminService::AdminService(ServerState& state, AdminHooks hooks, std::string version,
                           std::string commit)
    : state_(state),
      hooks_(std::move(hooks)),
      version_(std::move(version)),
      commit_(std::move(commit)),
      began_us_(state.clock.now_us()) {}

void AdminService::fill(admin::ServerInfo* info) const {
  info->set_version(version_);
  info->set_commit(commit_);
  info->set_uptime_ms(static_cast<uint64_t>((state_.clock.now_us() - began_us_) / 1000));
  std::optional<RecentFigures> figures = hooks_.figures();
  switch (state_.phase.load()) {
    case ServerState::Phase::kLoading:
      info->set_state("loading");
      break;
    case ServerState::Phase::kReady:
      info->set_state("ready");
      break;
    case ServerState::Phase::kDraining:
      info->set_state(state_.failed.load() ? "failed" : "draining");
      break;
  }
  if (!figures) return;
  fill_engine(*figures, info);
  fill_memory(state_.backing->model.info.memory, info->mutable_memory());
}

grpc::ServerUnaryReactor* AdminService::GetServerInfo(grpc::CallbackServerContext* context,
                                                      const admin::GetServerInfoRequest*,
                                                      admin::ServerInfo* response) {
  if (grpc::Status s = check_token(state_, context); !s.ok()) return answer(context, s);
  fill(response);
  return answer(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* AdminService::Abort(grpc::CallbackServerContext* context,
                                              const admin::AbortRequest* request,
                                              admin::AbortResponse*) {
  if (grpc::Status s = check_token(state_, context); !s.ok()) return answer(context, s);
  bool known = hooks_.figures() && state_.backing->dispatcher.abort(request->request_id());
  return answer(context, known ? grpc::Status::OK
                               : grpc::Status(grpc::StatusCode::NOT_FOUND,
                                              "no request with this request_id is in flight"));
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const admin::DrainRequest* request,
                                              admin::DrainResponse* response) {
  if (grpc::Status s = check_token(state_, context); !s.ok()) return answer(context, s);
  std::optional<int64_t> timeout_us;
  if (request->has_timeout_ms()) timeout_us = int64_t{request->timeout_ms()} * 1000;
  hooks_.drain(timeout_us);
  if (hooks_.figures())
    response->set_running(static_cast<uint32_t>(state_.backing->dispatcher.n_in_flight()));
  return answer(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* AdminService::PlanMemory(grpc::CallbackServerContext* context,
                                                   const admin::PlanMemoryRequest* request,
                                                   admin::MemoryPlan* response) {
  if (grpc::Status s = check_token(state_, context); !s.ok()) return answer(context, s);
  if (!hooks_.plan_memory)
    return answer(context, {grpc::StatusCode::UNIMPLEMENTED, "this server cannot plan memory"});
  Result<MemoryFigures> plan =
      hooks_.plan_memory({request->flags().begin(), request->flags().end()});
  if (plan.ok()) fill_memory(*plan, response);
  return answer(context, to_grpc(plan.status()));
}

grpc::ServerUnaryReactor* AdminService::SetPolicy(grpc::CallbackServerContext* context,
                                                  const admin::Policy* request,
                                                  admin::Policy* response) {
  if (grpc::Status s = check_token(state_, context); !s.ok()) return answer(context, s);
  if (!hooks_.figures()) return answer(context, no_model());
  std::lock_guard lock(state_.policy_mutex);  // one change at a time
  const EnginePort& port = state_.backing->port;
  EnginePolicy policy = port.policy();
  if (Status s = change_policy(*request, state_.backing->model.info, &policy); !s.ok())
    return answer(context, to_grpc(s));
  port.set_policy(policy);
  describe(policy, response);
  state_.log.info("policy changed", {{"policy", response->ShortDebugString()}});
  return answer(context, grpc::Status::OK);
}

}  // namespace pf
