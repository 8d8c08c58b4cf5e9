"""Every bound of bide, with its reason. Nothing waits, grows or repeats without a line here.

Units stand last in a name: `_s` seconds, `_bytes`, `_max` a count. Those a person may see or set are told of in
`bounds.py`.
"""

from __future__ import annotations

KIB, MIB, GIB = 1024, 1024**2, 1024**3
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

# -- leases: the holder stops well before the giver would give it to another (law 7) ---------------------------------
LEASE_S = 120.0  # long enough for a server restart, short enough to notice a dead runner
LEASE_S_MIN, LEASE_S_MAX = 0.5, 1 * HOUR  # below, a busy machine misses renewals; above, a dead runner hides
LEASE_HOLDER_SHARE = 2 / 3  # the holder freezes at 80 of 120 s: covers one long poll and clock drift
POLL_S = 20.0  # a long poll ends before usual proxies cut it (30 s and more)
POLL_SHARE = 1 / 6  # with leases of seconds polls shrink along: a poll never outlasts the margin
MISSED_POLLS = 3  # then the session shows "out of contact"
RECOVERY_S = 60.0  # how long an interrupted session waits for its own runner where work would be lost
RECOVERY_S_MAX = 1 * HOUR  # whoever waits longer for a machine wants another one
RECALLED_S = 1.0  # a message that no conversation holds may still be on its way into a runtime that lives
RECALL_S = 10.0  # a look into a runtime's conversation: the longest is read in four
FROZEN_S = 1 * HOUR  # a frozen runtime acts no more; past this its memory is wanted back
OUTAGE_GAP_SHARE = 1 / 4  # the waker silent for longer than this part of a lease: the server was away
WAKER_S = 0.5  # how often due sessions are looked for
WAKE_HOLD_SHARE = 1 / 8  # of a lease: a session that one server is waking is left alone by the others for so long
QUEUE_PAGE = 100  # queued sessions looked at in one read
QUEUE_PAGES_MAX = 10  # and reads of one look for work: what no runner can take must not make each look endless
DISK_FLOOR_BYTES = 256 * MIB  # left free on a runner's disk beside what a session needs: it is going to write
AFFINITY_S = 3.0  # a resume waits this long for the runner that still has the folder

# -- how long a session is kept ---------------------------------------------------------------------------------------
ONLINE_WINDOW_S = 15 * MINUTE  # an answer that comes within a coffee finds everything still running
ONLINE_WINDOW_S_MAX = 7 * DAY  # a slot that waits longer is lost to the others
RETENTION_S = 30 * DAY  # longer than a holiday
RETENTION_S_MIN = 60.0  # below, nobody could act on a warning
RETENTION_S_MAX = 3650 * DAY  # ten years; what is longer is a slip of the pen
RETENTION_MAX_S = 365 * DAY  # unless a server or project says otherwise: what nobody wanted for a year is forgotten
WARN_SHARES = (0.5, 0.9)  # of the time a session is kept: time to plan, and time to act
WARN_LAST_S = 1 * HOUR  # before its end: the last call
WARN_SAME_S = 0.01  # moments closer than this are one; far above the rounding of seconds since 1970
WORKSPACE_BYTES = 20 * GIB  # of one checkpoint: dependencies and build outputs of large repositories fit
WORKSPACE_BYTES_MIN, WORKSPACE_BYTES_MAX = 1 * MIB, 1024 * GIB  # a home with a conversation; what can be read in a day
WORKSPACE_NEAR_SHARE = 0.8  # of it: said while there is still room to act
CHECKPOINTS_NAMED_MAX = 20  # in a sentence; the latest
CHECKPOINTS_KEPT = 20  # an afternoon's turns to go back to
CHECKPOINTS_KEPT_MIN, CHECKPOINTS_KEPT_MAX = 2, 500  # the one before the last is the way out when the last is damaged

# -- transitional states: each ends by itself, with a reason ----------------------------------------------------------
STARTING_S = 20 * MINUTE  # clone or restore of a big repository, then the start of the runtime
PARKING_S = 15 * MINUTE  # first upload of a big workspace
CANCELLING_S = 5 * MINUTE
RETRY_PARK_S = 60.0  # a park that failed is tried again after this
TAKEUPS_MAX = 10  # a session that brings down each runner that takes it up again goes back to its last save
STARTS_MAX = 5  # so many starts that fail in a row end the session as failed

# -- the runner's own waits -------------------------------------------------------------------------------------------
REHEARSAL_STOP_S = 2.0  # open answers of the rehearsal model get this long when it ends
SPAWN_S = 60.0  # from spawn to the runtime's first sign of life
INTERRUPT_S = 10.0  # a runtime that does not stop its turn by then is ended and resumed
CLOSE_S = 10.0  # end of stdin to exit
TERM_S = 5.0  # SIGTERM to SIGKILL
RUNTIME_TRIES_MAX = 3  # a runtime that dies this often on one input gets no fourth try
STOPPING_S = CLOSE_S + TERM_S + 10.0  # and REAP_S twice: what is not gone by then hangs in the kernel
HEARD_S = 120.0  # a message to the runtime's first word: it says that it begins within a second, on a busy machine ten
RUNTIME_SILENCE_S = 15 * MINUTE  # no tool runs, no model is asked: nothing that a runtime does by itself takes as long
RUNTIME_SILENCE_S_MIN, RUNTIME_SILENCE_S_MAX = 5.0, 1 * DAY  # a busy machine's pause; whoever waits longer for nothing
QUIET_SHARE = 1 / 3  # of that, people are told
TOOL_QUIET_S = 15 * MINUTE  # a tool without a word: test suites and builds are silent for minutes
TOOL_SILENCE_S = 1 * HOUR  # it is stopped then, unless the session allows more: an hour of nothing is mostly a hang
TOOL_SILENCE_S_MIN, TOOL_SILENCE_S_MAX = 60.0, 7 * DAY  # any build may pause; the longest known ones
MODEL_QUIET_S = 2 * MINUTE  # an answer that has not a word in so long is worth telling; models think for minutes
PROBE_S = 20.0  # `--version` on a cold disk
SANDBOX_PROBE_S = 5.0
SANDBOX_START_S = 20.0  # spawn to the sandbox's own sign of life; the unshare rung runs some 40 mounts on a cold disk
RUNTIME_SEEN_S = 2.0  # go-ahead to the runtime's pid; one that ended at once has none
REAP_S = 5.0  # SIGKILL to an empty process namespace; longer means a process stuck in the kernel
FREEZE_S = 5.0  # stopping a whole session takes milliseconds; past this something hangs in a system call
GIT_S = 20 * MINUTE  # clone
STOP_LOOK_S = 0.1  # how often a clone looks whether it is still wanted
TOOLCHAIN_S = 10 * MINUTE  # the versions of the machine's tools are looked at again after this
HOOK_CHARS = 2000  # a resume hook: what is longer belongs in a script of the repository
PATTERNS_MAX = 100  # of one project, left out or kept all the same
PATTERN_CHARS = 400
HOOK_S = 30.0  # a resume hook: the runtime waits for it, and SPAWN_S for both
HOOK_TAIL_BYTES = 2 * KIB  # of its output that is told
LOCKS_LOOKED_MAX = 100_000  # names looked at for stale locks of git
FULL_BYTES = 1 * MIB  # a disk with less than this is full: nothing but a few small files could be written
GIT_QUICK_S = 30.0  # status and the like
UPLOAD_TRIES_S = (1.0, 2.0, 5.0, 15.0, 30.0)  # waits between tries; the last one repeats
CLONE_SAVE_S = 2.0  # the first turn waits so long for the save of the fresh clone: a runtime takes as long to start
CHECKPOINT_INTERVAL_S = 10 * MINUTE  # within a long turn
CHECKPOINT_INTERVAL_S_MAX = 1 * DAY  # more is no saving within a turn
NAME_TAKEN_S = 5.0  # until a runner whose name is taken asks again: the other's silence is measured in leases
RESEND_S = 5.0  # facts not acknowledged by then are sent again
HTTP_S = 30.0  # one request that is not a long poll
SYNC_PATIENCE_SHARE = 1 / 2  # of what is left of a lease: one server may hang, and another still renew it
SYNC_PATIENCE_S_MIN = 2.0  # a busy server is no server that hangs
SYNC_WAIT_SHARE = 1 / 2  # of that patience a server may keep the question: else a quiet one looks like one that hangs
UNWELL_S = 60.0  # a runner that could not make a workspace leaves new sessions to others for so long
DRAIN_POLL_S = 0.5  # a draining runner asks often: its leases must live until its sessions are parked
DRAIN_ALONE_S = 10.0  # with the server away nothing can be parked: it is waited for so long
DRAIN_S = 60.0  # SIGTERM of a runner: working sessions get this long to end their turn
DRAIN_SAVE_S = 60.0  # then the turns are stopped, and all get this long to be saved
UPLOADS_END_S = 1.0  # of a process that leaves: a blob store that hangs must not hold it up
LEAVE_S = 20.0  # what could not be saved by then: its runtime is ended in order (CLOSE_S, TERM_S, REAP_S)
DRAIN_S_MAX = 1 * DAY  # a deadline further away than this is no drain
DRAIN_LATE_S = 5 * MINUTE  # past its deadline, for the saving; who waits for a drain gives up then
DRAIN_LOOK_S = 0.5  # how often who waits for a drain looks how far it is

# -- the server's own waits -------------------------------------------------------------------------------------------
SYNC_LOOK_S = 1.0  # a waiting sync looks again this often unasked: hints can be lost, affinity runs out by time
SYNC_IDLE_LOOK_S = 5.0  # and this often while nothing in the queue is for its runner: then only a hint can be lost
FLEET_CACHE_S = 0.5  # what a waiting sync knows of the other runners: their own words are older than that anyway
COALESCE_S = 0.02  # a waiting sync sleeps this long after a hint: one look for a burst of facts
LOOP_BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0)  # a loop that failed waits so long; the last one repeats
SHUTDOWN_S = 5.0  # SIGTERM of a server to its end: open requests finish, or are cut
KEEP_ALIVE_S = 75  # longer than any long poll and than usual proxies keep a connection to us
FILES_WANTED = 20_000  # each open stream is a descriptor
PULSE_SHARE = 1 / 4  # of the silence that counts as an outage: the pulse is written that often, not at every look
TOKEN_CHARS_MIN = 24  # of a token that somebody chose: one that can be tried out opens everything
TOKEN_CACHE_S = 5.0  # a token that was good is not asked for again so long; one that was taken back ends within it
TOKENS_CACHED_MAX = 10_000  # a few megabytes; past this the oldest are asked for again
READY_S = 2.0  # whoever asks whether the server is ready asks again soon; a frozen database is no answer
METRICS_CACHE_S = 2.0  # several scrapers together read the store once in this time
LAG_LOOK_S = 0.25  # between two looks at how late the event loop is
QUEUE_PLACES_MAX = 20  # sessions of one answer that are told their place in the queue: each costs a count
BLOB_STEP_S = 20.0  # one read or write of a part: a disk that takes longer hangs
BLOB_THREADS = 8  # that read and write objects; those stuck on a disk that hangs cost the others nothing but blobs
RUNNER_TOKENS_MAX = 3  # a renewed runner's older tokens stay good: the reply with the new one may be lost
BLOB_PART_BYTES = 4 * MIB  # an object passes through the server's memory in parts of this size
BLOBS_BUFFERED_MAX = 4  # uploads to an object store that the server holds whole at once; the others wait their turn
BLOB_SIGNED_S = 15 * MINUTE  # a signed URL: a pack on a slow line, and no longer should somebody else see it
BLOB_SIGNED_MAX = 100  # keys of one request
WAITS_BYTES = 1 * KIB  # why a save waits: several processes write it to one pipe, which keeps 4 KiB in one piece
BLOB_MARK_S = 1.0  # a look at which store it is holds for writes so long: a disk does not come and go faster
BLOB_MARK_ROOTS = 20  # newest checkpoints, one of which tells the store of a database from before there were marks
UPLOAD_SILENT_S = 30.0  # of an object on its way in: a line that carries nothing for so long is dead
UPLOAD_S = 15 * MINUTE  # for the whole of it, as long as a signed URL is good: one byte now and then holds nothing up

MODEL_TRIES_S = (1 * MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE)  # a turn that a model's outage ended is tried again
# after these; usual outages are over by then, and an hour of more would only hide from people that it is one
RETRY_AFTER_S_MAX = 6 * HOUR  # a model that wants to be left alone for longer is asked again all the same
MODEL_S = 5 * MINUTE  # silence of the model within one answer: its API sends a ping every few seconds
MODEL_START_S = 3 * MINUTE  # an answer that is streamed begins within seconds; one that does not will not come
MODEL_WHOLE_S = 10 * MINUTE  # one that comes in one piece is begun when it is finished
MODEL_BODY_BYTES = 64 * MIB  # of a request to the model: twice what the usual API takes
MODEL_BODIES_BYTES = 2 * MODEL_BODY_BYTES  # of all that a lease has open: a hundred usual ones, and no runner's memory
MODEL_BODY_S = 1 * MINUTE  # to read one that comes over loopback in a second: a frozen session is asked to try again
MODEL_ASKING_MAX = 32  # requests of one lease at once: more than a runtime has parts that work side by side
LINGER_S = 2.0  # open requests at the gateway get this long when the runner goes
CLEAR_SOON_S = 0.1  # after an interrupt: TERM to what lost its parent; runtimes have asked what they know of by then
CLEAR_LATE_S = 1.0  # all else is killed: time for a tool to tidy up, and an interrupt is felt within 2 s all the same
CLEAR_LOOK_S = 0.05  # between looks at what of the turn still lives: each reads the list of all processes
SWEEP_LOOK_S = 0.005  # between looks at what still lives: most processes are gone in a few milliseconds
BEGUN_LOOKS_MAX = 100  # looks at what began during the look before; each is shorter than that
BEGUN_MAX = 1000  # processes that began during one look; past this, or where numbers begin anew, all are looked at
FREEZE_LOOK_S = 0.001  # between looks at what still acts: it can fork meanwhile

IDLE_TICK_S = 1.0  # the runner's machine is told the time at least this often
TICK_MIN_S = 0.02  # and at most this often
SNAPSHOT_THREADS = 4  # restores and captures at once on one runner; more would only fight for its disk

ENDING_THREADS = 16  # that end what sessions leave, in milliseconds, or REAP_S where the kernel holds a process

# -- what a session may cost ------------------------------------------------------------------------------------------
BUDGET_USD = 0.0  # none, unless a project or a session sets one: what is too much only its owner knows
BUDGET_USD_MAX = 1e5  # above, it is a slip of the pen
WORKING_S = 24 * HOUR  # with a turn under way; a session that works for longer without an end in sight is lost
WORKING_S_MIN, WORKING_S_MAX = 10.0, 30 * DAY  # below, nothing can be wrapped up; a month of work is several sessions
WALL_NEAR_SHARE = 0.9  # of what it may cost: then the coding agent is told to wrap up
WRAP_UP_S_MIN, WRAP_UP_S_MAX = 2 * MINUTE, 10 * MINUTE  # before its time is up: some commands, and a summary
TOKEN_USD_GUESS = 5e-6  # of a token, until a session has its own price: what the large models take for input
TOKEN_BYTES_GUESS = 4  # of text, where an answer ended before it said its size: usual for English, more than code has
METER_FRAME_BYTES = 85  # of a streamed event's line that are no words of the model
METER_GUESS_MAX = 10**6  # tokens guessed of one request, and of its answer: no window is larger, but pictures are long
METER_BYTES = 1 * MIB  # one event of an answer, or a whole one; those that tell of tokens have some hundred bytes
COST_USD_MAX = 1e6  # of one report: what is more is a runtime's mistake, and must not spoil the sum
COST_TOKENS_MAX = 10**12

# -- sizes ------------------------------------------------------------------------------------------------------------
MESSAGE_BYTES = 256 * KIB  # one message; a longer text belongs in a file
QUESTION_BYTES = 64 * KIB
OPTIONS_MAX = 20
TITLE_CHARS = 200
LABELS_MAX = 20  # of one runner, or wanted by one session
LABEL_CHARS = 100
TITLE_CUT_CHARS = 80  # a title made of the prompt's first line: fits one line of a list
TASK_CHARS = 4000  # the first prompt, kept as the recap of last resort
RECAP_ITEMS_MAX = 20  # messages, and questions, of an earlier session that a new one is told of: the latest
RECAP_ITEM_BYTES = 2 * KIB  # of each of them
RECAP_WORDS_BYTES = 8 * KIB  # of its last words, which often say where it stood
RECAP_LOOKS_MAX = 20  # pages of its log read backwards in search of them
REPOSITORY_CHARS = 2000  # a URL or a path; usual programs take no longer ones
MODEL_CHARS = 200  # the name of a model
REASON_CHARS = 300  # why a runner could not take a session: one or two lines
KEY_CHARS = 200  # an idempotency key; a UUID has 36
INPUTS_MAX = 200  # undelivered inputs of one session
EVENTS_PER_POST_MAX = 100
FACT_BATCH_MAX = 50
FACTS_PER_POST_MAX = 4 * FACT_BATCH_MAX  # taken at once: a later release may send more than this one does
FACT_ITEMS_MAX = 10_000  # entries of one list in a fact: far above what a runner names
FACT_BATCH_BYTES = 4 * MIB  # half of what one request may have
FACT_LIST_BYTES = 256 * KIB  # of one list in a fact; the rest is counted
GAP_TRIES_MAX = 3  # words of a hole that a server does not take: an older one never will
NAME_TOLD_CHARS = 200  # an id or a name that a runtime made up; a longer one is cut, and still like itself
CALLS_MAX = 200  # answered tool calls that a lease remembers: a runtime repeats the last ones, if any
QUESTIONS_MAX = 50  # open ones of one session
UNSURE_MAX = 50  # inputs in doubt that a session remembers, so that a person can say what became of them
CLOSED_MAX = 50  # closed questions a session remembers, so that a late answer hears what became of its question
ANSWERED_MAX = (
    20  # answered questions a session keeps whole, to ask them again where it goes back to before their answers
)
FILES_NOTED_MAX = 50  # files of unsaved work that a session can name; the latest
REPORT_LOST_MAX = 10  # losses told to the model one by one: it has to read them before it works
OPTION_BYTES = 1 * KIB
TEXT_BYTES = 64 * KIB  # one text in an event; longer ones are cut with a mark
CUT_MARK_BYTES = 64  # by so much a text that was cut may be longer: the mark that says so
TOOL_OUTPUT_BYTES = 16 * KIB  # one tool result in an event
TRANSCRIPT_BYTES = 256 * MIB  # a conversation file; a larger one is not a conversation
TRANSCRIPT_LINES_MAX = 500_000  # and its lines, which have more than 500 bytes: short ones take as long to be read
TRANSCRIPT_LINE_BYTES = 64 * MIB  # one of them: with what a tool gave, or pictures that a person sent
GIT_HEAD_BYTES = 1 * KIB  # what HEAD or a branch says: a hash, or a name of which each part is a file's
GIT_REFS_BYTES = 32 * MIB  # its list of packed branches and tags, some 400,000; of more the head is not told
LINE_BYTES = 16 * MIB  # one line of a runtime, held and read as a whole; of a longer one the event has its beginning
LINE_SPILL_BYTES = 1 * MIB  # of a line are held twice; what comes then goes to a file, should it become too long
MADE_MAX = 100  # questions and assumptions that one turn can record: more than people read, and no flood of the log
RAWS_MAX = 100  # lines that are no frames in one turn: enough to see what a runtime prints, and no flood of the log
OUTPUT_BYTES = 128 * MIB  # kept whole of a text that its event has cut; what is longer is hardly read by anybody
OUTPUTS_BYTES = 1 * GIB  # of all of one session: a month of long ones, and no more disk than its checkpoints take
OUTPUTS_MAX = 10_000  # of one session: each is a row and an object
OUTPUTS_AT_ONCE = 2  # brought by one runner: facts and checkpoints want the line, too
OUTPUT_PATIENCE_S = 30.0  # the last word of a lease waits so long for those still on their way: a park must not hang
OUTPUT_REASONS_MAX = 20  # told of by one lease; a disk or a server says no in a few ways
OUTPUT_NAME_CHARS = 64  # an epoch and a number; far above
PIECE_FRAME_BYTES = 1 * MIB  # encrypted and read at once: a part of a long one can be had alone
RAW_BYTES = 4 * KIB
BODY_BYTES = 8 * MIB  # one API request
STRANGER_BODY_BYTES = 4096  # one of somebody who is nobody yet: the code of a link
STRANGER_BODY_S = 5.0  # within which it has to come, so that strangers hold no memory
BLOB_BYTES = 128 * MIB  # one object of the blob store; packs are far smaller
LIST_MAX = 500  # rows of one answer
LIST_BYTES = 4 * MIB  # of events in one answer; a page of long ones ends sooner
LIST_DEFAULT = 100  # rows when nobody says how many
SEQ_MAX = 2**53  # the largest whole number that every JSON reader has
APART_S = 1e-6  # between questions of one moment, so that they have an order; four times what a float can tell apart
MOMENT_MAX = 253_402_214_400.0  # the last day of the year 9999, epoch seconds: calendars end there
LOST_ITEMS_MAX = 50
REPORT_LINES_MAX = 20  # of earlier losses not told yet, before those of a new one
STDOUT_CHUNK_BYTES = 256 * KIB  # one read of a runtime's stdout; twice this may wait, then its pipe fills and it blocks
STDERR_TAIL_BYTES = 16 * KIB  # the last words of a runtime
SHM_BYTES = 1 * GIB  # /dev/shm of a session: browsers and multiprocessing want some, memory is the machine's
RUNNING_MAX = 50  # processes named in "what was running"
LEFT_NAMED_MAX = 10  # of them, in a line about what a turn left running
ARGV_CHARS = 400  # one command line in it
SSE_PING_S = 15.0
SSE_AWAY_S = 1.0  # between two looks of a stream at a store that is away
SSE_RETRY_MS = 1000  # a reader whose stream ended comes back after this
SSE_BATCH = 64  # events read at once for one stream
SSE_BATCH_MIN = 4  # at its beginning, and while they are long: what a slow reader costs in memory
SSE_BYE_S = 1.0  # a server that ends waits so long for a reader to take what is being sent
SSE_FRAMES_BYTES = 256 * KIB  # of them at most so much is handed to the line at once
SSE_STALL_S = 30.0  # a reader that takes nothing for this long is closed; it resumes by its cursor
GLIMPSE_S = 0.2  # words of a runtime as it works are gathered so long: an eye sees no more than that
GLIMPSE_BYTES = 8 * KIB  # of one session gathered at once: faster than anybody reads; the oldest go
GLIMPSE_REST_S = 2.0  # until a runner offers more of what nobody watches
GLIMPSE_POST_S = 2.0  # what is not taken by then is of the past
GLIMPSES_PER_POST_MAX = 2000  # pieces of one request: one of each kind, of all sessions of a runner
GLIMPSES_HELD_BYTES = 64 * KIB  # for a reader that is slow: the oldest go
GLIMPSE_COST_BYTES = 256  # of one, beside its text
STREAM_SESSIONS_MAX = 100  # sessions in one stream
CHANGES_S = 0.5  # between two frames that name what has changed: a list of sessions need not be drawn more often
STILL_S = 15.0  # between two looks whether a stream's reader may still read
WARM_FOLDERS_MAX = 200  # kept as caches by one runner, should their bytes allow so many
WARM_DISK_SHARE = 1 / 4  # of the runner's disk may be taken by them
WARM_FLOOR_SHARE = 1 / 10  # of it stays free: the sessions at work need it more
SALVAGE_FOLDERS_MAX = 20  # folders of leases that were lost; of more the oldest go, those that nobody came for
SALVAGE_KEEP_S = (
    3 * DAY
)  # they stay so long, unless the disk is full: a weekend, until somebody looks for the work in them
WARM_TOLD_MAX = 5 * WARM_FOLDERS_MAX  # of one sync; a later release may keep more folders than this one
SPOOL_BYTES = 1 * MIB  # what a lease keeps on disk is written anew past this: it is read whole at the next start
SPOOL_GROWTH = 4  # and past so many times its shortest form: with the server away that one is long itself
SLOTS_DEFAULT = 4
SLOTS_MAX = 1000  # of one runner: more is a slip of the pen, no machine
SYNC_SESSIONS_MAX = 4 * SLOTS_MAX  # named by one sync: held, offered and given back are each at most the slots
SYNC_AT_ONCE_MAX = 100  # sessions of one sync handled at once: one runner must not fill the store's queue
PROCESS_CHARS = 100  # the name of a runner's process or folder, the name or version of a runtime; an id has 36
ROOT_CHARS = 4096  # a path, on every Linux
RUNTIMES_MAX = 100  # of one runner, each version counted
PROBLEM_BYTES = 1 * KIB  # why a runtime cannot be used, and what to do about it

# -- the web page ----------------------------------------------------------------------------------------------------
SIGN_IN_S = 15 * MINUTE  # a link: from the terminal to the browser, with a coffee in between
PAGE_S = 14 * DAY  # a browser that was signed in stays so: over a holiday week it need not be fetched again
PAGES_MAX = 50  # browsers signed in at once; of more the oldest are signed out
LINKS_MAX = 200  # sign-in links that wait at once; of more the oldest go

# -- checkpoints ------------------------------------------------------------------------------------------------------
CHUNK_BYTES = 1 * MIB  # a file up to this is one chunk; larger ones are cut where their content says so
CUT_BYTES_MIN, CUT_BYTES, CUT_BYTES_MAX = 128 * KIB, 512 * KIB, 2 * MIB  # there: measured, facts/snapshots.md §7
LIST_CUT_BYTES_MIN, LIST_CUT_BYTES, LIST_CUT_BYTES_MAX = 4 * KIB, 16 * KIB, 64 * KIB  # and long lists of files
FRAME_BYTES = 1 * MIB  # small files are compressed together up to this; what one damaged spot can cost
PACK_BYTES = 16 * MIB  # one uploaded object: few requests, little memory
FRAME_BYTES_MAX = 16 * MIB  # a frame that claims more is not ours, which have 3 MiB: it would only fill the memory
FRAME_CHUNKS = 10_000  # in one frame: tiny files would otherwise fill it by the hundred thousand
PACK_CHUNKS = 100_000  # in one pack: their list, of 36 bytes each, is read whenever one of them is wanted
PACK_BYTES_MAX = 64 * MIB  # a pack that claims more is not ours: one is held in memory while it is read back
FRAMES_MAX = 10_000  # in one pack: more than PACK_BYTES would take if each frame shrank six hundredfold
SEGMENT_BYTES = 16 * MIB  # a list of files ends here, unless it is that of a single folder
SEGMENT_BYTES_MAX = 64 * MIB  # a list of files that claims more is refused: some half a million names in one folder
SEGMENT_NAMES_MAX = 500_000  # folders and entries in one list of files: some 250 bytes of memory each
SEGMENT_PARTS_MAX = (
    4_000_000  # names, pieces of files and attributes in one: a piece takes 32 bytes, unless it is a hole
)
SEGMENT_CHUNKS_MAX = 20_000  # parts of one list: SEGMENT_BYTES_MAX, were each as short as LIST_CUT_BYTES_MIN
LISTS_AT_ONCE = 256  # parts of lists of files fetched in one go
LISTS_AT_ONCE_BYTES = 4 * MIB  # and how long they are together, unless a single list is longer
LIST_XATTR_BYTES_MAX = 32 * MIB  # attributes of the files of one folder, which stand in its list: half of what it holds
XATTR_COST_BYTES = 64  # so much more counts each of them there: it takes that in memory, however short it is
SEGMENTS_MAX = 350_000  # lists of files in a checkpoint: five million folders, sixteen in each
ROOT_BYTES_MAX = 64 * MIB  # a root that claims more is not ours: SEGMENTS_MAX with paths of 100 bytes
ROOT_WORDS_MAX = 100_000  # sentences, or patterns, in a root: NOTES_MAX, and what each project's rules leave out
PATH_BYTES_MAX = 16 * KIB  # of a folder in its tree, four times what systems take: a chain costs its depth squared
LOST_NAMED_MAX = 100_000  # lost files named one by one; the rest are counted
FOOTER_TAIL_BYTES = 128 * KIB  # read at first from a pack's end: the lists of most fit
FOOTER_BYTES_MAX = 64 * MIB  # a pack's list of chunks that claims more is not ours: 1.8 million, at 36 bytes a chunk
FOOTER_SHRINKS_MAX = 4  # it unpacks to so many times its length at most: names of chunks cannot be compressed
FOOTER_BYTES_FREE = 4 * KIB  # and to so much in any case
WORKERS_MAX = 8  # processes of one capture or restore; more would only fight for the disk
WORKER_MEMORY_SHARE = 1 / 2  # of the machine's, for each process of a capture: the runner must outlive any folder
WORKER_MEMORY_MIN = 2 * GIB  # left to it on a small machine: a million files take about one
WORKER_STOP_S = 10.0  # from its last word to its end
READS_AT_ONCE = 8  # lists of packs asked for at the same time: each is one short answer of the store
READS_AHEAD = 3  # reads of contents under way before they are used, in each process: hides the store's delay
READ_BYTES = 2 * MIB  # one of them, unpacked, unless a single frame is longer: with READS_AHEAD it bounds the memory
READ_GAP_BYTES = 128 * KIB  # unwanted bytes read rather than asked around
CHUNKS_LAID_OUT_MAX = 300_000  # known to a capture, in a table of 150 bytes each: for more memory counts more than time
RESTORE_WINDOW = 50_000  # contents planned at once: some 500 bytes of memory each
SEGMENT_FOLDERS = 16  # in a segment, about: see the format
RESTORE_IN_PLACE_MAX = 50_000  # entries to be made in a folder that stands; for more it is faster to make all anew
VERIFY_WINDOW = 250_000  # names of contents looked for at once: some 100 bytes each
RESTORE_FORK_MIN = 2_000  # contents, or MiB, below which more processes cost more than they save
PACK_BYTES_SMALL = 1 * MIB  # a pack that is worth joining with others
PACKS_SMALL_MAX = 32  # of them in a checkpoint: a cold restore asks for the list of each, a root names each
TIDY_EVERY = (
    16  # checkpoints of a session until one looks how much of its packs is wanted: half a second in a large folder
)
TIDY_BYTES = 16 * MIB  # less waste than this is not worth writing what is left anew
PACK_DEAD_MAX = (
    0.5  # the share of a pack that may be wanted no more: from here on writing it anew frees more than it costs
)
ENTRY_COST_BYTES = 40 * KIB  # an entry costs a capture as much time as so many bytes of content: opening, looking
LOOKED_BYTES = 4 * MIB  # of lists of folders held unpacked between two looks; unpacked they are ten times as long
SCAN_FORK_FOLDERS = 200  # of a tree that was never seen: with so many to be looked at more processes are begun
SCAN_FORK_ENTRIES = 30_000  # a walk of fewer is over before another process has begun
CAPTURE_FORK_BYTES = 64 * MIB  # reading less than this, with entries counted so, is not worth more processes
CAPTURE_BATCHES = 24  # parts of the work for each process: small enough that all end at about the same time
DRAWN_MAX = 1000  # parts of some work, in all: their numbers fit into a pipe at once
SEAL_TRIES_MAX = 3  # of a capture that builds upon packs which are collected meanwhile: rare once, hardly ever twice
READ_ROUNDS_MAX = 10  # of files with several names, the first of which vanishes each time that the others are read
STOP_LOOK_S = 0.2  # how often who waits for its children looks whether it is to stop
READ_FILE_BYTES = 8 * MIB  # read at once from a long file: few calls, and several chunks at a time
READ_TRIES_MAX = 3  # a file that changes under each of these reads is kept as last read, and named
RACY_NS = 20_000_000  # a file changed this shortly before a capture may change again within the same clock tick
RACY_WHOLE_NS = 1_000_000_000  # the same where a ctime is a whole second: its file system may count no finer
FOLDERS_OPEN_MAX = 64  # folder handles held while walking, however deep the tree
HEALED_NAMED_MAX = 5  # entries of a folder that somebody had changed, named to people; the rest are counted
NOTES_MAX = 1000  # entries not kept, or warnings, named one by one; the rest are counted
EXCLUDED_NAMED_MAX = 3  # of what one pattern leaves out; the rest is counted
FRAMES_WAITING_MAX = 4  # read ahead of compression and upload; bounds the memory
SEGMENT_ENTRIES_MAX = 20_000  # in one segment of a list of files: they are in memory together
OBJECT_S = 120.0  # one transfer to or from an object store: BLOB_BYTES at 1 MiB a second
OBJECT_ASK_S = 20.0  # one question to it that moves no content
DIRECT_REST_S = 5 * MINUTE  # a runner that could not reach the object store itself goes through the server so long
BLOB_BAD_BYTES = 4 * KIB  # of an object count as lost where its disk cannot be read: a block of most file systems
BLOB_FOLDER_TRIES_MAX = 100  # a folder that is removed each time before an object is in it: once is rare
DIRECT_KEPT_SHARE = 1 / 2  # of its life a signed URL is used again: no read begins with one that is about to end
DIRECT_KEPT_MAX = 1000  # of them kept; each has about 500 bytes
BLOB_KEY_CHARS = 512  # far above ours, below the 1,024 bytes of common object stores
ROOT_DIGITS_MAX = 20  # of each number in the name of a root: 64 bits, which those of bases have
SEAL_PACKS_MAX = 20_000  # of one checkpoint: 300 GiB, compressed; the store takes their keys in one transaction

# -- reading a checkpoint without restoring it ---------------------------------------------------------------------
READERS_MAX = 4  # opened checkpoints kept by a server: some 50 bytes of memory for each of their contents
READER_KEPT_S = 1 * MINUTE  # since somebody last looked: then its keys leave the memory, too
READER_THREADS = 4  # that read for whoever looks at files; those stuck on a store that hangs cost nothing else
READER_FRAMES_BYTES = 16 * MIB  # unpacked contents kept by one: neighbours are asked for together
READER_LISTS_BYTES = 4 * MIB  # lists of files kept by one
READER_PART_BYTES = 256 * KIB  # of a file or an archive in one part of an answer
READER_STEP_S = 120.0  # one step of it: the longest is to look through the lists of a million files
FSCK_PULSE_S = 5.0  # while a large checkpoint is read through, whoever waits hears that it goes on
DIFF_BYTES_MAX = 1 * MIB  # a longer file is named, not compared: nobody reads it, and each is held as a whole
DIFF_LINES_MAX = 5000  # lines on either side between an equal beginning and an equal end: the time grows with them
DIFF_PAGE_BYTES = 1 * MIB  # of one answer: then the page ends
DIFF_CONTEXT_LINES = 3  # as everywhere
DIFF_STEPS_MAX = (
    5_000_000  # pairs of like lines looked at for one file: a second; texts made of few lines have billions
)
DIFF_LOOK_S = 1.0  # at what does not differ after all, until the others at files have their turn
DIFF_PAGE_S = 10.0  # then a page of differences ends early, too: whoever reads it sees that it goes on
LOST_LIST_BYTES = 1 * MIB  # in an archive, of what a damaged checkpoint cannot give; the rest is counted
DIFF_FOLDER_FILES = 200  # a new or removed folder with more is one line: dependencies, not work

# -- what systems can hold: a checkpoint that claims more was not made by bide ----------------------------------------
NAME_BYTES_MAX = 255  # a name in a folder, on every Linux file system
LINK_BYTES_MAX = 4095  # the target of a symbolic link
INT64_MAX = 2**63 - 1
XATTR_BYTES_MAX = 64 * KIB  # the value of an extended attribute
XATTRS_MAX = 10_000  # of one entry: their names are listed in 64 KiB, and a name has seven bytes with its end
OWNER_ID_MAX = 2**32 - 2  # the one above means "leave it as it is"
CHUNK_LENGTH_MAX = 2**32  # far above CHUNK_BYTES, so that later releases may choose larger ones
MTIME_NS_MIN, MTIME_NS_MAX = -(2**63), 2**64 - 1  # what file systems keep, in nanoseconds


# -- the client and the command line ----------------------------------------------------------------------------------
CONNECT_S = 5.0  # a server that does not take a connection by then is out of reach
FOLLOW_DEAD_S = 40.0  # two pings of a stream missed: its line is dead, though nobody said so
DOWNLOAD_DEAD_S = 150.0  # of silence: READER_STEP_S, and a little more
TOLD_BYTES = 8 * MIB  # of a download, until its progress is told again
FOLLOW_FIRST_S = 5.0  # a stream begins at once; whose beginning does not come by then is held back on its way
FOLLOW_LOOK_S = 1.0  # many sessions are looked at this often where their stream is held back
FOLLOW_BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 5.0)  # waits between tries to follow on; the last one repeats
FOLLOW_AWAY_S = 15 * MINUTE  # an upgrade of the server, a laptop carried home; past this the follower gives up
LOOK_AGAIN_S = 15.0  # who waits for a session looks at it this often unasked: words also change without an event
RUNNER_READY_S = 60.0  # from `bide up` to its runner's registration: probes of sandbox and runtimes on a cold disk
RUNNER_STOP_S = 150.0  # a runner that is told to end drains first: DRAIN_S, DRAIN_SAVE_S, LEAVE_S
RUNNER_LOOK_S = 0.05  # how often it looks whether its runner has come up or ended
UP_LOOK_S = 0.1  # how often `bide up` looks whether both still run
PRINTED_LINE_BYTES = (
    64 * KIB
)  # of a file on a terminal; the rest of a longer line is left out: it fills screens already
LOG_TAIL_LINES = 5  # last words of a program that ended, shown to a person
DURATION_S_MAX = 3650 * DAY  # ten years; what is longer is a slip of the pen
SHOWN_INPUT_CHARS = 200  # of a tool's input in the log of a session: one or two lines
RUNNER_STARTS_MAX = 3  # starts of its runner by `bide up` within RUNNER_STARTS_S; what fails so often needs a person
RUNNER_STARTS_S = 60.0
ID_PREFIX_MIN = 6  # shorter beginnings of an id name nothing on purpose
NAMED_MAX = 10  # things listed for one beginning of an id: who typed it takes one of them, or types more of it
CLOCK_SKEW_S = 5.0  # times of client and server further apart than this mislead whoever reads them
DISK_FREE_BYTES = 2 * GIB  # less free space ends in failed checkpoints soon

# -- the demo ---------------------------------------------------------------------------------------------------------
DEMO_LEASE_S = 10.0  # short enough to watch, long enough for a busy laptop to renew it in time
DEMO_WINDOW_S = 2.0  # how long its session waits online for the answer before it parks
DEMO_LOOK_S = 0.05  # how often it looks whether a process has come up
DEMO_READY_S = 60.0  # from the start of a server or runner until it is there, on a cold disk
DEMO_REHEARSED_S = 90.0  # one act with the rehearsal model, which takes seconds
DEMO_REAL_S = 20 * MINUTE  # one act with a real model, which thinks
DEMO_STOP_S = 15.0  # SIGTERM to SIGKILL: its runners have nothing to lose
DEMO_LINE_CHARS = 160  # of one line that it tells

# -- the rehearsal ----------------------------------------------------------------------------------------------------
REHEARSAL_TEXT_CHARS = 200  # of each text in its log: enough to know it by, the whole stands in `bodies`
CACHE_MARKS_MAX = 4  # the real API's

# -- the store --------------------------------------------------------------------------------------------------------
STORE_BUSY_S = 5.0  # another program that holds the database, e.g. to copy it; past this callers hear of it
STORE_QUEUE_MAX = 2000  # writes that wait for the one writer: seconds of its work
STORE_GROUP_MAX = 256  # writes of one commit: more gains nothing and makes the first of them wait
STORE_READERS = 2  # threads that read beside the writer: reads are short, and the interpreter runs one at a time
STORE_READS_MAX = 2000  # reads that wait for them
STORE_CHECK_BYTES = 64 * MIB  # a database up to this is read through at the start, a tenth of a second; others in part
STORE_LOG_BYTES = 64 * MIB  # the write-ahead log is cut back to this once it is copied into the database
STORE_LOG_PAGES = 4000  # the log is copied at this length (16 MiB): pages of busy sessions are copied once, not often
STORE_CACHE_BYTES = 32 * MIB  # the writer's: a group's pages stay in memory until it commits
STORE_CONNECT_S = 5.0  # a database server that does not take a connection by then is away
STORE_COMMAND_S = 15.0  # one statement: longer than any lock may be waited for, and all that a frozen database can cost
STORE_LOCK_S = 10.0  # for what another server has locked: longer than that one may be silent in a transaction
STORE_SILENT_S = 5.0  # a server that says nothing for so long within a transaction is frozen or gone: it is undone
STORE_BUILD_S = 30 * MINUTE  # one step of the schema, or the wait for another server that does it: indexes of millions
STORE_AGAIN_S = 0.5  # between tries to connect: a database that comes up is not hammered
STORE_TRIES_MAX = 3  # of a group that met another server's: the second try nearly always finds the way free
STORE_STOP_S = 5.0  # a connection that ends is waited for so long
STORE_LOOK_S = 1.0  # watched sessions of a shared database are looked at this often: a hint may have got lost
LISTEN_ASK_S = 15.0  # a connection that only listens is asked this often whether it still lives
NOTIFY_BYTES = 7900  # PostgreSQL takes less than 8,000 in one notification
REFILE_ROWS = 100  # sessions filed anew in one transaction, which makes the others wait
REFILE_FACTS = 20_000  # read anew in one transaction, unless one session has more: a fraction of a second of locks
REFILE_PAUSE_S = 0.05  # between two such transactions: the others come first
REFILE_LOOK_S = 60.0  # and how often it is looked whether there are more: an older server may still write
SCRUB_LOOK_S = 60.0  # between two rounds of looking at what is saved, of all servers together
SCRUB_SESSIONS = 200  # looked at in one round: a few small reads each
SCRUB_CYCLE_S = 1 * HOUR  # no session is looked at more often than that
SCRUB_FULL_CYCLES = 168  # in one of so many cycles all of its bytes are read: weekly, where the cycles are hourly
FORGET_S = 1 * HOUR  # between two rounds of forgetting, of all servers together: what is forgotten is days old
FORGET_LOOK_S = 10 * MINUTE  # how often a server looks whether a round is due: the one that did the last may be gone
FORGET_GAP_S = 2 * HOUR  # more than this between two rounds does not count as absence: no server was there to see it
FORGET_PAGE = 500  # documents read at once, and removed at once
RUNNER_KEPT_S = 7 * DAY  # a runner missing for so long does not come back as the one it was; a holiday is shorter
KEY_KEPT_S = 7 * DAY  # an idempotency key of a new session: whoever repeats a request does it within minutes
SERVER_ALIVE_S = 15 * MINUTE  # a server not heard of for so long has ended: what only it needed can go
WAKEUPS_MAX = 1000  # changed sessions kept for one listener; past this it hears that anything may have changed

# -- keys, erasure and collection -------------------------------------------------------------------------------------
PIN_S = 1 * HOUR  # a fork whose session does not come to be gives its checkpoint free after this; it takes a moment
BASE_AGE_S = 7 * DAY  # a project's base older than this is replaced: its dependencies have changed by then
BASE_BYTES_MIN = 1 * MIB  # a repository with less is uploaded by each session sooner than its base could be made
BASE_LINE_MAX = 4  # bases, each but the first built upon the one before; the next is whole, so that old ones can go
BASE_SETTLED_S = 1 * HOUR  # from the seal of a base to its publishing there is one upload
BASE_LOOK_S = 2.0  # how often a server looks whether a base is offered: sessions that begin meanwhile upload all
BASE_CHECK_S = 10 * MINUTE  # a base that cannot be read in so long is none: 30 GB from a near store, 6 from a slow one
BASE_CLAIM_S = 15 * MINUTE  # whoever reads a base has ended by then: longer than BASE_CHECK_S
BASE_TRIES_MAX = 3  # readings of a base that ended without a word; it may be what ends them
BASE_NICE = 10  # whoever reads a base lets those first who answer people
BASE_AGAIN_S = 1 * HOUR  # after a bad base no other is wanted: a runner that makes bad ones keeps no server reading
CONDEMNED_S = (
    1 * HOUR
)  # an object without a key is left so long for whoever reads it; longer than STARTING_S, PARKING_S
ORPHAN_S = 1 * HOUR  # since the last capture of a family: what no root names by then was never finished
COLLECT_S = 30.0  # between two rounds of collecting, of all servers together
COLLECT_LOOK_S = 10.0  # how often a server looks whether a round is due
COLLECT_FAMILIES = 200  # looked through in one round: a million families in two days, each of which may have changed
COLLECT_OBJECTS = 500  # deleted in one round, and documents read at once
ERASE_FACTS = 5000  # of an erased session's log removed in one transaction, which makes the others wait
ERASE_AT_ONCE = 200  # sessions erased in one transaction
ERASED_KEPT_S = 365 * DAY  # how long it is known that a session was erased: a runner's disk may come back until then
KEEPS_TOLD_MAX = 2000  # sessions of which something lies on a runner's disk, told in one sync; the others in the next


def retry_wait_s(failed: int) -> float:
    """How long to wait after so many failures in a row, 0 being the first."""
    return UPLOAD_TRIES_S[min(failed, len(UPLOAD_TRIES_S) - 1)]
