// Tells fleet when a turn of the terminal interface begins and ends. Loaded for one session through
// OPENCODE_CONFIG_CONTENT; FLEET_HOOK holds the argv of the program that takes the news on its stdin.
import { spawn } from "node:child_process"

const argv = JSON.parse(process.env.FLEET_HOOK)
const children = new Set() // sessions of subagents: their turns are not the agent's
let busy = false
let failure = null
let queue = Promise.resolve()

// One at a time, so that the news arrives in the order in which it happened.
function tell(news) {
  queue = queue.then(
    () =>
      new Promise((done) => {
        const hook = spawn(argv[0], argv.slice(1), { stdio: ["pipe", "ignore", "ignore"] })
        hook.on("error", done)
        hook.on("close", done)
        hook.stdin.on("error", () => {})
        hook.stdin.end(JSON.stringify(news))
      }),
  )
}

export const FleetTurns = async () => {
  tell({ type: "ready" })
  return {
    "chat.message": async (input, output) => {
      if (children.has(input.sessionID)) return
      busy = true
      failure = null
      const texts = output.parts.filter((part) => part.type === "text" && !part.synthetic)
      tell({ type: "prompt", session: input.sessionID, text: texts.map((part) => part.text).join("") })
    },
    "tool.execute.after": async (input, output) => {
      if (children.has(input.sessionID)) return
      tell({ type: "tool", call: input.callID, tool: input.tool, title: output?.title })
    },
    event: async ({ event }) => {
      const told = event.properties ?? {}
      if (event.type === "session.created" && told.info?.parentID) children.add(told.info.id)
      if (children.has(told.sessionID)) return
      if (event.type === "permission.asked") {
        tell({ type: "approval", permission: told.permission, patterns: told.patterns })
      } else if (event.type === "session.error" && busy) {
        failure = told.error ?? { name: "unknown" }
      } else if (event.type === "session.idle" && busy) {
        busy = false
        tell({ type: "idle", session: told.sessionID, error: failure })
      }
    },
  }
}
