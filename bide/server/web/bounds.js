// Every bound of the page, with its reason. Units stand last: _MS milliseconds, _PX pixels.

export const ANSWER_MS = 30_000; // one request: longer than any answer takes; then its fate is unknown
export const SILENT_MS = 40_000; // a stream says something every 15 s; when two of these are missing the line is dead
export const HIDDEN_MS = 30_000; // a tab that nobody sees gives its line back: a browser has six for one server
export const RETRY_MS = [500, 1_000, 2_000, 5_000, 15_000]; // waits between tries to connect; the last one repeats
export const AGAIN_MS = 2_000; // a page of events that could not be had is asked for again
export const REFRESH_MS = 1_000; // what changed is asked for at most this often, however busy the fleet is
export const REREAD_MS = 60_000; // lists are read again unasked: a hint may have got lost
export const TICK_MS = 10_000; // how old things are is said anew
export const DRAFT_MS = 250; // a draft is stored this long after the last key, and whenever the page is left
export const PAGE_EVENTS = 200; // read at once: a screen has some twenty, and this is one short answer
export const HELD_EVENTS = 20_000; // kept in memory; the farthest are let go and read again when they are wanted
export const ROW_PX = 32; // a row that was not measured yet
export const OVERSCAN_PX = 500; // drawn above and below what is seen, so that scrolling shows no holes
export const SETTLES_MAX = 20; // drawings in a row until rows of unknown height fill the view; each brings one more
export const BOTTOM_PX = 40; // closer than this to its end a timeline stays at its end
export const SHOWN_LINES = 12; // of an output, before it is unfolded
export const SHOWN_CHARS = 1_600; // the same for lines without end
export const SAID_LINES = 400; // of what a person or the coding agent says: as good as all of it
export const SAID_CHARS = 30_000; // the same, in characters
export const INPUT_CHARS = 300; // of what a tool is given
export const GLIMPSE_CHARS = 2_000; // of what is being said at this moment: its end is what moves
export const CHANGED_MAX = 10; // sessions asked for one by one; of more the list is read
export const LIST_PAGE = 100; // sessions read at once
export const NOTICE_MS = 3_000; // a word of confirmation goes by itself
