"""The plain reverse proxy of the seed article, twice: `python proxies.py fastapi|robyn PORT ENGINE_URL`."""
import sys

import httpx

kind, port, engine = sys.argv[1], int(sys.argv[2]), sys.argv[3]
PATH = "/v1/chat/completions"
client: httpx.AsyncClient | None = None


def upstream() -> httpx.AsyncClient:
    global client
    if client is None:
        limits = httpx.Limits(max_connections=1024, max_keepalive_connections=1024)
        client = httpx.AsyncClient(base_url=engine, limits=limits, timeout=60)
    return client


JSON = {"content-type": "application/json"}

if kind == "fastapi":
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.responses import Response

    app = FastAPI()

    @app.get("/health")
    async def health():
        return "OK"

    @app.post(PATH)
    async def chat(request: Request):
        answer = await upstream().post(PATH, content=await request.body(), headers=JSON)
        return Response(answer.content, answer.status_code, media_type="application/json")

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)
else:
    from robyn import Request, Response, Robyn

    app = Robyn(__file__)

    @app.get("/health")
    async def health():
        return "OK"

    @app.post(PATH)
    async def chat(request: Request):
        answer = await upstream().post(PATH, content=request.body, headers=JSON)
        return Response(status_code=answer.status_code, headers=JSON, description=answer.text)

    sys.argv = [sys.argv[0], "--log-level", "ERROR"]
    app.start(host="127.0.0.1", port=port)
