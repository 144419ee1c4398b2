// What the check of exercise 1.3 asks beside the calls themselves. watched.h is before the
// learner's text.

static int watched_call(void* manager, int method, int block_id, int* result, char* message) {
  int code;
  check::watch.stuck = false;
  {
    check::Call call(manager, sizeof(BlockManager), method);
    code = manager_call(manager, method, block_id, result, message);
  }
  return check::watch.stuck ? 8 : code;
}

extern "C" void* watched_manager_new(int num_blocks, int* code, char* message) {
  check::watch.held.clear();  // what others never gave back
  return manager_new(num_blocks, code, message);
}
extern "C" int watched_manager_call(void* manager, int method, int block_id, int* result,
                                    char* message) {
  return watched_call(manager, method, block_id, result, message);
}
extern "C" void watched_manager_delete(void* manager) { manager_delete(manager); }
extern "C" int is_locked() { return !check::watch.held.empty(); }

// From here on it is written down who touches what.
extern "C" void record() {
  check::Busy while_here;
  check::watch.touches.clear();
  check::watch.taken_in.clear();
  check::watch.recording = true;
}
extern "C" void uses_of_locks(int* uses) {
  check::watch.recording = false;
  check::judge(uses, 5);
}

struct Outcome {
  int code, result;
  char message[256];
};

static struct {
  void* manager;
  const int *methods, *block_ids;
  Outcome* outcomes;
  bool came;
} meeting;

static void make(int i) {
  Outcome& outcome = meeting.outcomes[i];
  outcome.code = watched_call(meeting.manager, meeting.methods[i], meeting.block_ids[i],
                              &outcome.result, outcome.message);
}

// Makes the first call, and the second one in gap number `gap` of it. Returns 0 where the
// first has no such gap.
extern "C" int meet(void* manager, int gap, const int* methods, const int* block_ids,
                    Outcome* outcomes) {
  meeting = {manager, methods, block_ids, outcomes, false};
  check::watch.visitor = [] { meeting.came = true, make(1); };
  check::watch.gaps = 0, check::watch.visit_at = gap;
  make(0);
  check::watch.visit_at = -1, check::watch.visitor = nullptr;
  return meeting.came;
}

// Whether the class has a member `mutex_`; built with -fno-access-control, which opens private
// members.
template <class Manager>
static auto has_member(Manager& manager, int) -> decltype(manager.mutex_.lock(), 1) {
  return 1;
}
template <class Manager>
static int has_member(Manager&, long) {
  return 0;
}
extern "C" int has_mutex(void* manager) {
  return has_member(*static_cast<BlockManager*>(manager), 0);
}
